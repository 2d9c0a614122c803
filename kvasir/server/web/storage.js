// What the browser keeps for this page. Deliberately never throws: a browser that keeps nothing, or
// has no room, costs what was to be kept and not the page.

// The getter itself throws where site data is blocked.
function storageOf(name) {
  try {
    return window[name];
  } catch {
    return null;
  }
}

class Store {
  constructor(name) {
    this.kept = storageOf(name);
    this.unkept = new Map();  // what the browser did not take; as long as the page lives
  }

  // null: nothing.
  get(key) {
    if (this.unkept.has(key)) return this.unkept.get(key);
    try {
      return this.kept.getItem(key);
    } catch {
      return null;
    }
  }

  // Whether the browser keeps it; what it kept before stays otherwise.
  set(key, text) {
    try {
      this.kept.setItem(key, text);
      this.unkept.delete(key);
      return true;
    } catch {
      this.unkept.set(key, text);
      return false;
    }
  }

  remove(key) {
    this.unkept.delete(key);
    try {
      this.kept.removeItem(key);
    } catch {
      // Nor was it kept.
    }
  }
}

export const tabStore = new Store('sessionStorage');
export const browserStore = new Store('localStorage');
