/** The answers that the Python tests compare with the server's, and a translation that translates nothing. */
import { readFileSync } from 'node:fs';

export const golden = name => JSON.parse(readFileSync(new URL(`../../tests/golden/${name}.json`, import.meta.url), 'utf8'));

const fill = (message, args) => message.replace(/%(\d)/g, (_, n) => args[n - 1]);
export const trans = {
  __: (message, ...args) => fill(message, args),
  _n: (one, many, n, ...args) => fill(n === 1 ? one : many, args)
};
