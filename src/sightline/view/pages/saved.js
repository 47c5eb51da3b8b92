// Views that somebody wants to find again, by name, in this browser: the server keeps nothing.

const SHELF = "sightline-views";

export function savedViews() {
  try {
    return JSON.parse(localStorage.getItem(SHELF) ?? "{}");
  } catch {
    return {};
  }
}

export function saveView(name, address) {
  localStorage.setItem(SHELF, JSON.stringify({ ...savedViews(), [name]: address }));
}

export function forgetView(name) {
  const { [name]: _, ...left } = savedViews();
  localStorage.setItem(SHELF, JSON.stringify(left));
}
