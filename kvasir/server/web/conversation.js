// A conversation as a tree: every edit and every other answer is a branch, and one path is shown.
// Deliberately without a page and without a server.

const STORE = 'kvasir.conversation';

export class Conversation {
  constructor() {
    this.root = {id: 0, parent: null, children: [], chosen: 0, role: 'root'};
    this.nextId = 1;
  }

  // A new message after `parent`, beside those that are there already; it is the one shown.
  add(parent, role, content) {
    const message = {
      id: this.nextId++, parent, children: [], chosen: 0, role, content,
      reasoning: '', error: '', note: '', stats: null, isStreaming: false,
    };
    parent.children.push(message);
    parent.chosen = parent.children.length - 1;
    return message;
  }

  // The messages shown, first to last.
  path() {
    const path = [];
    for (let at = this.root; at.children.length > 0;) {
      at = at.children[at.chosen];
      path.push(at);
    }
    return path;
  }

  last() {
    return this.path().at(-1) ?? this.root;
  }

  // Shows the sibling `step` places on, with what followed it.
  choose(message, step) {
    const {parent} = message;
    const place = parent.children.indexOf(message) + step;
    if (place >= 0 && place < parent.children.length) parent.chosen = place;
    return parent.children[parent.chosen];
  }

  // For the API: what leads to `message`, itself included. Answers that failed or were stopped before
  // they began are empty there: many templates refuse two questions in a row.
  messagesUpTo(message) {
    const messages = [];
    for (let at = message; at.role !== 'root'; at = at.parent) {
      messages.unshift({role: at.role, content: at.content});
    }
    return messages;
  }

  // Kept for this tab, so that a reload loses nothing.
  save() {
    const plain = (message) => ({
      ...message, parent: undefined, isStreaming: undefined, raw: undefined,
      children: message.children.map(plain),
    });
    try {
      sessionStorage.setItem(STORE, JSON.stringify({root: plain(this.root), nextId: this.nextId}));
    } catch {
      // The browser's room is full: the conversation goes on without being kept.
      sessionStorage.removeItem(STORE);
    }
  }

  static restored() {
    const conversation = new Conversation();
    try {
      const kept = JSON.parse(sessionStorage.getItem(STORE));
      if (!kept) return conversation;
      const link = (message, parent) => {
        message.parent = parent;
        message.isStreaming = false;
        message.children.forEach((child) => link(child, message));
      };
      link(kept.root, null);
      conversation.root = kept.root;
      conversation.nextId = kept.nextId;
    } catch {
      sessionStorage.removeItem(STORE);
    }
    return conversation;
  }
}

// Splits what a model wrote into its reasoning and its answer, where it marks one with <think>.
export function splitReasoning(text) {
  const match = /^\s*<think>([\s\S]*?)(?:<\/think>\s*|$)/.exec(text);
  return match ? {reasoning: match[1].trim(), answer: text.slice(match[0].length)}
               : {reasoning: '', answer: text};
}
