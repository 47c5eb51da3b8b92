// Where answers come from: a server under /api, or, in a bundle, the page itself.

const held = new Map();
const MOST_HELD = 60;

export function bundled() {
  return globalThis.sightlineBundle ?? null;
}

function words(parameters) {
  const given = Object.entries(parameters ?? {}).filter(([, value]) => value !== "" && value != null);
  return new URLSearchParams(given.sort(([a], [b]) => (a < b ? -1 : 1))).toString();
}

export async function ask(name, parameters) {
  const key = `${name}?${words(parameters)}`;
  if (bundled()) return bundled().answer(name, parameters ?? {}, key);
  const answer = await fetch(`/api/${key}`);
  const found = answer.status === 403 ? { error: (await answer.text()).trim() } : await answer.json();
  if (!answer.ok) throw new Error(found.error ?? `the server answered ${answer.status}`);
  return found;
}

// The same, and the answer stays at hand: for cases, which somebody goes back and forth between.
export function askOnce(name, parameters) {
  const key = `${name}?${words(parameters)}`;
  if (!held.has(key)) {
    if (held.size >= MOST_HELD) held.delete(held.keys().next().value);
    held.set(key, ask(name, parameters).catch((error) => { held.delete(key); throw error; }));
  }
  return held.get(key);
}

export function imageAddress(parameters) {
  return bundled() ? bundled().image(parameters) : `/api/image?${words(parameters)}`;
}

export async function takeAlong(parameters) {
  const answer = await fetch(`/api/take?${words(parameters)}`);
  const found = await answer.text();
  if (!answer.ok) throw new Error(JSON.parse(found).error);
  return found;
}

export function takeAddress(parameters) {
  return `/api/take?${words(parameters)}`;
}

// A page that is kept open outlives its server now and then.
export function inWords(error) {
  return error instanceof TypeError ? "the server does not answer; start `sightline view` again" : error.message;
}
