// The page: what happens when somebody types, stops, edits, branches.
// Deliberately one answer at a time; other tabs and clients are not its business.
import {ApiError, getJson, streamChat} from './api.js';
import {CacheView} from './cache_view.js';
import {ChatView} from './chat_view.js';
import {Conversation, splitReasoning} from './conversation.js';
import {byId, h, isComposing, textOf} from './dom.js';
import {askForKey, Settings} from './settings.js';

const EXAMPLES = [
  'The pass key is 48213. Remember it. What is the pass key?',
  'Lucia whispered: "We need three plates." Freya answered: "I lost my silver letter." ' +
    'What did Freya say?',
  'Spell the word "river".',
];

let conversation = Conversation.restored();
let running = null;  // the AbortController of the answer being made
const settings = new Settings();
const cache = new CacheView();
const view = new ChatView(conversation, {
  mayAnswer: () => mayAnswer(),
  edit: (message, text) => {
    answer(conversation.add(message.parent, 'user', text));
    byId('stop').focus();
  },
  retry: (message) => {
    if (!mayAnswer()) return;
    answer(message.parent);
    byId('stop').focus();
  },
  choose: (message, step) => {
    const shown = conversation.choose(message, step);
    keep();
    view.showAll();
    focusIn(shown, step < 0 ? '.previous' : '.next');
  },
});

const mayAnswer = () => !running && settings.check();

// Streams an answer to `question`, the last message of what is shown from here on. REQUIRES:
// mayAnswer().
async function answer(question) {
  const message = conversation.add(question, 'assistant', '');
  message.isStreaming = true;
  message.raw = '';
  running = new AbortController();
  keep();
  showBusy(true);
  view.showAll();
  view.scrollToEnd();
  cache.refreshSoon();
  const body = {
    messages: [...settings.systemMessages(), ...conversation.messagesUpTo(question)],
    ...settings.sampling(),
  };
  try {
    await streamChat(body, {
      signal: running.signal,
      onChunk: (chunk) => take(message, chunk),
      onProgress: (text) => {
        message.note = `Reading the ${text} …`;
        view.update(message);
      },
    });
  } catch (error) {
    fail(message, error);
  }
  message.isStreaming = false;
  delete message.raw;
  running = null;
  keep();
  showBusy(false);
  view.showAll();
  byId('announcer').textContent = message.error || message.content || message.note;
  cache.refreshSoon();
  // The server was down when the page came.
  if (!message.error && !byId('error').hidden) start();
  if (message.status === 401 && await askForKey(message.error)) {
    start();
    conversation.remove(message);
    keep();
    view.showAll();
    if (mayAnswer()) answer(question);
  }
}

function take(message, chunk) {
  const choice = chunk.choices[0];
  const delta = choice?.delta ?? {};
  if (delta.reasoning_content) message.reasoning += delta.reasoning_content;
  if (delta.content) {
    message.raw += delta.content;
    const {reasoning, answer: text} = splitReasoning(message.raw);
    message.content = text;
    if (reasoning) message.reasoning = reasoning;
  }
  if (delta.content || delta.reasoning_content) message.note = '';
  if (choice?.finish_reason) {
    message.note = choice.finish_reason === 'length' ? 'cut off: as long as it may be' : '';
  }
  if (chunk.usage) {
    message.stats = {
      prompt: chunk.usage.prompt_tokens,
      cached: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0,
      generated: chunk.usage.completion_tokens,
      perSecond: chunk.timings?.predicted_per_second ?? 0,
    };
  }
  view.update(message);
}

function fail(message, error) {
  if (error.name === 'AbortError') {
    message.note = 'stopped';
    return;
  }
  if (!(error instanceof ApiError)) console.error(error);
  message.note = '';
  message.error = error.message;
  message.status = error.status;
}

function keep() {
  byId('unkept').hidden = conversation.save();
}

function showBusy(isBusy) {
  view.isBusy = isBusy;
  const hadFocus = [byId('send'), byId('stop')].includes(document.activeElement);
  byId('send').hidden = isBusy;
  byId('stop').hidden = !isBusy;
  if (hadFocus) byId(isBusy ? 'stop' : 'send').focus();
  if (isBusy) byId('announcer').textContent = 'Answering';
}

function send() {
  const text = textOf(byId('prompt'));
  if (!text || !mayAnswer()) return;
  byId('prompt').value = '';
  fitPrompt();
  answer(conversation.add(conversation.last(), 'user', text));
}

function focusIn(message, selector) {
  const item = view.items.get(message);
  const button = item?.querySelector(`${selector}:not(:disabled)`) ?? item?.querySelector('button');
  button?.focus();
}

// A request beside the chat was refused for lack of a key.
async function refused(message) {
  if (!running && await askForKey(message)) start();
}

function fitPrompt() {
  const prompt = byId('prompt');
  prompt.style.height = 'auto';
  prompt.style.height = `${Math.min(prompt.scrollHeight + 2, 240)}px`;
}

function listen() {
  const prompt = byId('prompt');
  byId('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    send();
  });
  prompt.addEventListener('input', fitPrompt);
  prompt.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !isComposing(event)) {
      event.preventDefault();
      send();
    } else if (event.key === 'ArrowUp' && prompt.value === '') {
      const last = conversation.path().filter((message) => message.role === 'user').at(-1);
      if (last) view.edit(last);
      event.preventDefault();
    }
  });
  byId('stop').addEventListener('click', () => running?.abort());
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && !isComposing(event) && !document.querySelector('dialog[open]')) {
      running?.abort();
    }
  });
  // So that what there is of the answer is kept.
  addEventListener('pagehide', () => running?.abort());
  byId('new-chat').addEventListener('click', () => {
    running?.abort();
    conversation = view.conversation = new Conversation();
    keep();
    view.showAll();
    prompt.focus();
  });
  toggles('show-settings', 'settings', false);
  const narrow = matchMedia('(max-width: 900px)');
  const showCache = toggles('show-cache', 'cache', !narrow.matches, (isShown) => {
    document.body.classList.toggle('with-cache', isShown);
    cache.watch(isShown);
  });
  // There it would hide the chat.
  narrow.addEventListener('change', () => {
    if (narrow.matches) showCache(false);
  });
  byId('key').addEventListener('change', start);
}

function toggles(button, panel, isShown, then = () => {}) {
  const show = (is) => {
    byId(panel).hidden = !is;
    byId(button).setAttribute('aria-expanded', String(is));
    then(is);
  };
  byId(button).addEventListener('click', () => show(byId(panel).hidden));
  show(isShown);
  return show;
}

async function start() {
  try {
    const props = await getJson('/props');
    byId('model').textContent = props.model_alias;
    document.title = `${props.model_alias} – Kvasir`;
    settings.showDefaults(props.default_generation_settings.params);
    byId('error').hidden = true;
    cache.refreshSoon();
  } catch (error) {
    if (error.status === 401) return refused(error.message);
    byId('error').textContent = error.message;
    byId('error').hidden = false;
  }
}

byId('examples').append(...EXAMPLES.map((text) => h('button', {type: 'button', onclick: () => {
  byId('prompt').value = text;
  fitPrompt();
  byId('prompt').focus();
}}, text)));
view.showAll();
listen();
start();
