// What the page asks of the server. Saves go out one after the other: each names the entry that it supersedes.

export class Refused extends Error {
  constructor(words, status, field) {
    super(words);
    this.status = status;
    this.field = field; // the question to look at again
  }
}

async function answer(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refused("The server does not answer. What says “saved” is safe; start it again and open its new address.", 0);
  }
  const said = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
  if (!response.ok) throw new Refused(said.error, response.status, said.field);
  return said;
}

export const get = (path) => answer(path);
export const post = (path, body = {}) =>
  answer(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

// One item's chain of entries. `save` may be called at any time; the state of the last call wins.
export class Saver {
  constructor(number, entry, heard) {
    this.number = number;
    this.head = entry ? entry.number : null;
    this.heard = heard;
    this.last = Promise.resolve();
  }

  save(fields, confirmed) {
    const sent = structuredClone(fields);
    const next = this.last.then(async () => {
      this.heard("saving", null);
      const said = await post("/save", { number: this.number, fields: sent, confirmed, supersedes: this.head });
      this.head = said.entry.number;
      this.heard("saved", said);
      return said;
    });
    this.last = next.catch(() => {});
    return next;
  }

  async settled() {
    await this.last;
  }
}
