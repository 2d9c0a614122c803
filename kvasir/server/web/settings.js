// The settings of a chat: system prompt and sampling. Deliberately only what is set is sent:
// whatever is empty stays as the model recommends.
import {apiKey} from './api.js';
import {byId, h, textOf} from './dom.js';
import {browserStore} from './storage.js';

const STORE = 'kvasir.settings';

// `standard`: the name in /props, for the placeholder.
const FIELDS = [
  {name: 'temperature', label: 'Temperature', min: 0, max: 2, step: 'any', standard: 'temperature'},
  {name: 'top_p', label: 'Top p', min: 0, max: 1, step: 'any', standard: 'top_p'},
  {name: 'top_k', label: 'Top k', min: 0, step: 1, standard: 'top_k'},
  {name: 'min_p', label: 'Min p', min: 0, max: 1, step: 'any', standard: 'min_p'},
  {name: 'repeat_penalty', label: 'Repeat penalty', min: 0.1, max: 2, step: 'any',
   standard: 'repeat_penalty'},
  {name: 'max_tokens', label: 'Most tokens', min: 1, step: 1, empty: 'as fit'},
  {name: 'seed', label: 'Seed', min: 0, step: 1, empty: 'random'},
];

export class Settings {
  constructor() {
    const kept = this.load();
    this.inputs = new Map();
    for (const {name, label, min, max, step} of FIELDS) {
      const input = h('input', {type: 'number', id: `set-${name}`, min, max, step,
                                inputmode: 'decimal'});
      input.value = kept[name] ?? '';
      this.inputs.set(name, input);
      byId('sampling').append(h('label', {}, label, input));
    }
    this.system = byId('system');
    this.system.value = kept.system ?? '';
    byId('key').value = apiKey.get();
    byId('settings').addEventListener('submit', (event) => event.preventDefault());
    byId('settings').addEventListener('input', (event) => this.save(event.target));
    byId('key').addEventListener('change', () => apiKey.set(byId('key').value.trim()));
    byId('reset-settings').addEventListener('click', () => {
      for (const input of [...this.inputs.values(), this.system]) {
        input.value = '';
        this.save(input);
      }
    });
  }

  showDefaults(params) {
    for (const {name, standard, empty} of FIELDS) {
      const value = params?.[standard];
      this.inputs.get(name).placeholder =
        typeof value === 'number' ? String(+value.toFixed(3)) : empty ?? '';
    }
  }

  // False, and the first value that cannot be sent is shown, if there is one.
  check() {
    const wrong = [...this.inputs.values()].find((input) => !input.validity.valid);
    if (!wrong) return true;
    if (byId('settings').hidden) byId('show-settings').click();
    wrong.reportValidity();
    return false;
  }

  // What goes into a request beside the messages. REQUIRES: check().
  sampling() {
    const set = {};
    for (const [name, input] of this.inputs) {
      if (input.value !== '') set[name] = input.valueAsNumber;
    }
    return set;
  }

  systemMessages() {
    const content = textOf(this.system);
    return content ? [{role: 'system', content}] : [];
  }

  // One field: others may have been set in another tab since.
  save(field) {
    const name = field === this.system
      ? 'system' : [...this.inputs].find(([, input]) => input === field)?.[0];
    if (name) browserStore.set(STORE, JSON.stringify({...this.load(), [name]: field.value}));
  }

  load() {
    try {
      return {...JSON.parse(browserStore.get(STORE))};
    } catch {
      return {};
    }
  }
}

// Asks for the key; true once there is a new one.
export function askForKey(reason) {
  const dialog = byId('key-dialog');
  if (dialog.open) return Promise.resolve(false);
  byId('key-reason').textContent = reason;
  byId('key-entry').value = '';
  dialog.showModal();
  return new Promise((resolve) => {
    const end = (isGiven) => {
      byId('key-form').onsubmit = byId('key-cancel').onclick = dialog.oncancel = null;
      dialog.close();
      // Chromium gives the focus back without a caret: what is typed would be lost.
      byId('prompt').blur();
      byId('prompt').focus();
      resolve(isGiven);
    };
    byId('key-form').onsubmit = (event) => {
      event.preventDefault();
      apiKey.set(byId('key-entry').value.trim());
      byId('key').value = apiKey.get();
      end(true);
    };
    byId('key-cancel').onclick = () => end(false);
    dialog.oncancel = () => end(false);
  });
}
