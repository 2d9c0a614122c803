// What the page asks of the server: the same routes that every client has.
// Deliberately without an account: a key, if there is one, lives as long as the tab.
import {tabStore} from './storage.js';

const KEY = 'kvasir.key';

export const apiKey = {
  get: () => tabStore.get(KEY) ?? '',
  set: (key) => key ? tabStore.set(KEY, key) : tabStore.remove(KEY),
};

// What the server answered instead of what was asked for. status 0: nothing came.
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

function headers(more = {}) {
  const key = apiKey.get();
  // As if refused, so that it is asked for again. A browser sends no such header.
  if (!/^[\x20-\x7e]*$/.test(key)) {
    throw new ApiError('The key has characters that are not ASCII. Was more than the key copied?', 401);
  }
  return key ? {...more, Authorization: `Bearer ${key}`} : more;
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('The server does not answer. Is it still running?', 0);
  }
  if (response.ok) return response;
  let message = `The server answered ${response.status}.`;
  try {
    // A proxy's may be a text.
    const {error} = await response.json();
    message = error?.message ?? (typeof error === 'string' ? error : message);
  } catch {
    // Or a page; the status has to do.
  }
  throw new ApiError(message, response.status);
}

export async function getJson(path) {
  const response = await ask(path, {headers: headers()});
  try {
    return await response.json();
  } catch {
    throw brokenOff();
  }
}

const brokenOff = () => new ApiError('The server broke off in the middle of its answer.', 0);

// Streams a chat. `signal` ends it: the connection closes, which is what cancels it in the server.
// onChunk gets every chunk, onProgress the text of comments (how far a long prompt is).
export async function streamChat(body, {signal, onChunk, onProgress}) {
  const response = await ask('/v1/chat/completions', {
    method: 'POST',
    headers: headers({'Content-Type': 'application/json'}),
    body: JSON.stringify({...body, stream: true, stream_options: {include_usage: true}}),
    signal,
  });
  let isDone = false;
  for await (const event of events(response.body)) {
    if (event.startsWith(':')) onProgress(event.slice(1).trim());
    if (!event.startsWith('data: ')) continue;
    const data = event.slice('data: '.length);
    if (data === '[DONE]') {
      isDone = true;
      continue;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.message, 200);
    onChunk(chunk);
  }
  if (!isDone) throw brokenOff();
}

// The events of a stream, without the blank lines between them.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = '';
  try {
    for (;;) {
      const {done, value} = await reader.read().catch((error) => {
        throw error.name === 'AbortError' ? error : brokenOff();
      });
      if (done) return;
      const parts = (pending + value).split('\n\n');
      pending = parts.pop();
      yield* parts;
    }
  } finally {
    reader.cancel().catch(() => {});  // whoever stops reading wants no more of the answer
  }
}
