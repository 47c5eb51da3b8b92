// Masks, cells and scores as they are stored: packed bits, little-endian floats.

export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

export function maskOf(base64, n) {
  const bytes = bytesOf(base64);
  return Uint8Array.from({ length: n }, (_, i) => (bytes[i >> 3] >> (7 - (i & 7))) & 1);
}

export function cellsOf(base64) {
  return new Float32Array(bytesOf(base64).buffer);
}

// As many bytes per score as there are, four or eight.
export function scoresOf(base64, n) {
  const { buffer } = bytesOf(base64);
  return buffer.byteLength === 8 * n ? new Float64Array(buffer) : new Float32Array(buffer);
}

// Places from the highest score to the lowest, ties to the lower index.
export function ranked(scores, start = 0, end = scores.length) {
  return Array.from({ length: end - start }, (_, i) => start + i).sort((a, b) => scores[b] - scores[a] || a - b);
}
