// Where somebody is: everything that is shown follows from the part of the address behind #, so that any of it can be
// linked, kept and gone back to.

export function placeNow() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { page: path || "overview", ...Object.fromEntries(new URLSearchParams(query ?? "")) };
}

export function addressOf(place) {
  const { page, ...rest } = place;
  const words = new URLSearchParams(Object.entries(rest).filter(([, value]) => value !== "" && value != null));
  return `#/${page}${words.size ? `?${words}` : ""}`;
}

export function go(place) {
  location.hash = addressOf(place);
}

// The same place seen a little differently: no new entry in the history, nothing is built anew.
export function note(changes) {
  history.replaceState(null, "", addressOf({ ...placeNow(), ...changes }));
}

// What is shown side by side: "0,full|1,full" is arm full of runs 0 and 1.
export function panelsOf(words) {
  return (words ?? "").split("|").filter(Boolean).map((part) => {
    const comma = part.indexOf(",");
    return { run: Number(part.slice(0, comma)), arm: part.slice(comma + 1) };
  });
}

export function panelWords(panels) {
  return panels.map(({ run, arm }) => `${run},${arm}`).join("|");
}
