// The steps of a transformation: each takes the value that the step before it made, and makes the next.
//
// Pure functions on JSON values, without eval and without HTTP, so that they are tested with any Node.js.

/** Something that is wrong with the request; its text says where, and what is expected. */
export class Mistake extends Error {}

/** How many steps one transformation may have. */
export const MOST_STEPS = 64;
/** How many parts a path may have. */
const MOST_PARTS = 32;

/** Runs `steps` over `input`. Throws a `Mistake` that names the step at fault. */
export function transform(input, steps) {
  if (!Array.isArray(steps)) {
    throw new Mistake('"steps" must be a list of steps such as {"op": "pick", "keys": ["name"]}');
  }
  if (steps.length > MOST_STEPS) {
    throw new Mistake(`"steps" has ${steps.length} steps; ${MOST_STEPS} at most`);
  }
  return steps.reduce((value, step, index) => {
    try {
      return apply(value, step);
    } catch (error) {
      if (error instanceof Mistake) {
        const name = isObject(step) && typeof step.op === 'string' ? ` (${step.op})` : '';
        throw new Mistake(`step ${index + 1}${name}: ${error.message}`);
      }
      throw error;
    }
  }, input);
}

function apply(value, step) {
  if (!isObject(step)) {
    throw new Mistake('must be an object with "op"');
  }
  const { op, ...options } = step;
  if (typeof op !== 'string' || !Object.hasOwn(OPERATIONS, op)) {
    throw new Mistake(`"op" must be one of ${Object.keys(OPERATIONS).join(', ')}`);
  }
  const { run, allows } = OPERATIONS[op];
  const unknown = Object.keys(options).find((key) => !allows.includes(key));
  if (unknown !== undefined) {
    const known = allows.length === 0 ? 'it takes none' : `it takes ${allows.join(', ')}`;
    throw new Mistake(`${JSON.stringify(unknown)} is not an option; ${known}`);
  }
  return run(value, options);
}

const OPERATIONS = {
  pick: { allows: ['keys'], run: (value, { keys }) => eachObject(value, picker(keys, true)) },
  omit: { allows: ['keys'], run: (value, { keys }) => eachObject(value, picker(keys, false)) },
  rename: { allows: ['names'], run: (value, { names }) => eachObject(value, renamer(names)) },
  map: { allows: ['path', 'set'], run: (value, options) => list(value).map(mapper(options)) },
  filter: { allows: ['where'], run: (value, { where }) => list(value).filter(condition(where)) },
  sort: { allows: ['by', 'order'], run: sort },
  flatten: { allows: ['depth'], run: flatten },
  group: { allows: ['by'], run: (value, { by }) => group(list(value), parts(by, '"by"')) },
  unique: { allows: ['by'], run: unique },
  slice: { allows: ['from', 'to'], run: slice },
  count: { allows: [], run: (value) => list(value).length },
  summarize: { allows: ['path'], run: summarize },
};

function picker(keys, keep) {
  if (!Array.isArray(keys) || !keys.every((key) => typeof key === 'string')) {
    throw new Mistake('"keys" must be a list of names');
  }
  const named = new Set(keys);
  return (object) => entriesOf(object).filter(([key]) => named.has(key) === keep);
}

function renamer(names) {
  if (!isObject(names) || !Object.values(names).every((name) => typeof name === 'string')) {
    throw new Mistake('"names" must be an object of old names to new names');
  }
  const rename = (key) => (Object.hasOwn(names, key) ? names[key] : key);
  return (object) => entriesOf(object).map(([key, value]) => [rename(key), value]);
}

function mapper({ path, set }) {
  if ((path === undefined) === (set === undefined)) {
    throw new Mistake('give either "path", the part to keep, or "set", an object of names to paths');
  }
  if (path !== undefined) {
    const from = parts(path, '"path"');
    return (item) => at(item, from) ?? null;
  }
  if (!isObject(set)) {
    throw new Mistake('"set" must be an object of names to paths');
  }
  const wanted = entriesOf(set).map(([name, source]) => [name, parts(source, `"set" of ${JSON.stringify(name)}`)]);
  return (item) => {
    const kept = isObject(item) ? entriesOf(item) : [];
    return Object.fromEntries([...kept, ...wanted.map(([name, from]) => [name, at(item, from) ?? null])]);
  };
}

const COMPARISONS = {
  eq: (value, than) => same(value, than),
  ne: (value, than) => !same(value, than),
  lt: (value, than) => comparable(value, than) && value < than,
  lte: (value, than) => comparable(value, than) && value <= than,
  gt: (value, than) => comparable(value, than) && value > than,
  gte: (value, than) => comparable(value, than) && value >= than,
  in: (value, than) => than.some((one) => same(value, one)),
  contains: (value, than) =>
    typeof value === 'string'
      ? typeof than === 'string' && value.includes(than)
      : Array.isArray(value) && value.some((one) => same(one, than)),
  exists: (value, than) => (value !== undefined) === than,
};

/** `{"path": {"gte": 3}, "other": "value"}`: all must hold; a plain value means eq. */
function condition(where) {
  if (!isObject(where) || Object.keys(where).length === 0) {
    throw new Mistake('"where" must be an object of paths to conditions, such as {"age": {"gte": 18}}');
  }
  const tests = entriesOf(where).flatMap(([path, wanted]) => {
    const from = parts(path, '"where"');
    return entriesOf(isObject(wanted) ? wanted : { eq: wanted }).map(([name, than]) => {
      if (!Object.hasOwn(COMPARISONS, name)) {
        throw new Mistake(`${JSON.stringify(name)} is no comparison; use ${Object.keys(COMPARISONS).join(', ')}`);
      }
      if (name === 'in' && !Array.isArray(than)) {
        throw new Mistake('"in" needs a list');
      }
      if (name === 'exists' && typeof than !== 'boolean') {
        throw new Mistake('"exists" needs true or false');
      }
      return (item) => COMPARISONS[name](at(item, from), than);
    });
  });
  return (item) => tests.every((test) => test(item));
}

/** Sorts by one path or several; what has no value there comes last, in either order. */
function sort(value, { by, order = 'asc' }) {
  if (order !== 'asc' && order !== 'desc') {
    throw new Mistake('"order" must be asc or desc');
  }
  const paths = by === undefined ? [[]] : (Array.isArray(by) ? by : [by]).map((path) => parts(path, '"by"'));
  const sign = order === 'asc' ? 1 : -1;
  // What is compared is looked up once an item, not once a comparison.
  const keyed = list(value).map((item) => ({ item, keys: paths.map((path) => at(item, path)) }));
  keyed.sort((left, right) => {
    for (let index = 0; index < paths.length; index += 1) {
      const difference = compare(left.keys[index], right.keys[index], sign);
      if (difference !== 0) {
        return difference;
      }
    }
    return 0;
  });
  return keyed.map(({ item }) => item);
}

const RANKS = ['boolean', 'number', 'string', 'object'];

function compare(left, right, sign) {
  const missing = Number(left === undefined || left === null) - Number(right === undefined || right === null);
  if (missing !== 0 || left === undefined || left === null) {
    return missing;
  }
  if (typeof left !== typeof right) {
    return sign * (RANKS.indexOf(typeof left) - RANKS.indexOf(typeof right));
  }
  // Objects and lists have no order: they stay as they came.
  return typeof left === 'object' || left === right ? 0 : sign * (left < right ? -1 : 1);
}

function flatten(value, { depth = 1 }) {
  return list(value).flat(whole(depth, '"depth"', 1, 32));
}

function group(items, by) {
  const groups = new Map();
  for (const item of items) {
    const value = at(item, by) ?? null;
    if (typeof value === 'object' && value !== null) {
      throw new Mistake('"by" leads to an object or a list; lead it to a text, a number, true, false or null');
    }
    const key = String(value);
    if (!groups.has(key)) {
      groups.set(key, []);
    }
    groups.get(key).push(item);
  }
  return Object.fromEntries(groups);
}

function unique(value, { by }) {
  const path = by === undefined ? [] : parts(by, '"by"');
  const seen = new Set();
  return list(value).filter((item) => {
    const key = canonical(at(item, path) ?? null);
    return !seen.has(key) && seen.add(key);
  });
}

function slice(value, { from = 0, to }) {
  const most = Number.MAX_SAFE_INTEGER;
  const end = to === undefined ? undefined : whole(to, '"to"', -most, most);
  return list(value).slice(whole(from, '"from"', -most, most), end);
}

function summarize(value, { path }) {
  const from = path === undefined ? [] : parts(path, '"path"');
  const numbers = list(value)
    .map((item) => at(item, from))
    .filter((one) => typeof one === 'number');
  const sum = numbers.reduce((total, one) => total + one, 0);
  const or = (figure) => (numbers.length === 0 ? null : figure());
  return {
    count: numbers.length,
    sum,
    min: or(() => numbers.reduce((least, one) => Math.min(least, one))),
    max: or(() => numbers.reduce((most, one) => Math.max(most, one))),
    mean: or(() => sum / numbers.length),
  };
}

/** The parts of a path such as `address.city` or `items.0`; the path `` is the value itself. */
function parts(path, what) {
  if (typeof path !== 'string') {
    throw new Mistake(`${what} must be a path such as "address.city"`);
  }
  const found = path === '' ? [] : path.split('.');
  if (found.length > MOST_PARTS) {
    throw new Mistake(`${what} has ${found.length} parts; ${MOST_PARTS} at most`);
  }
  return found;
}

/** What stands at a path, or undefined. Only what the JSON itself holds: never a method or a prototype. */
function at(value, path) {
  let here = value;
  for (const part of path) {
    const index = Array.isArray(here) && !/^(0|[1-9][0-9]*)$/.test(part);
    if (typeof here !== 'object' || here === null || index || !Object.hasOwn(here, part)) {
      return undefined;
    }
    here = here[part];
  }
  return here;
}

/** Rebuilds an object, or each object of a list, from the entries that `entries` makes of it. */
function eachObject(value, entries) {
  const one = (object) => {
    if (!isObject(object)) {
      throw new Mistake(`needs an object or a list of objects, not ${kind(object)}`);
    }
    // fromEntries defines own properties: a key like __proto__ stays data.
    return Object.fromEntries(entries(object));
  };
  return Array.isArray(value) ? value.map(one) : one(value);
}

function list(value) {
  if (!Array.isArray(value)) {
    throw new Mistake(`needs a list, not ${kind(value)}`);
  }
  return value;
}

function whole(value, what, least, most) {
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new Mistake(`${what} must be a whole number from ${least} to ${most}`);
  }
  return value;
}

function kind(value) {
  if (value === null) {
    return 'null';
  }
  if (Array.isArray(value)) {
    return 'a list';
  }
  return { object: 'an object', string: 'a text', number: 'a number', boolean: `${value}`, undefined: 'nothing' }[typeof value];
}

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const entriesOf = (object) => Object.entries(object);
const comparable = (left, right) => typeof left === typeof right && (typeof left === 'number' || typeof left === 'string');
const same = (left, right) => left === right || (left !== undefined && canonical(left) === canonical(right));

/** JSON with sorted keys: equal texts for equal values. */
function canonical(value) {
  return JSON.stringify(value, (_, inner) =>
    isObject(inner) ? Object.fromEntries(entriesOf(inner).sort(([left], [right]) => (left < right ? -1 : 1))) : inner,
  );
}
