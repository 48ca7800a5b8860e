// Tests of the steps: npm test in functions/json-transform.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Mistake, MOST_STEPS, transform } from '../src/steps.js';

const people = [
  { id: 1, name: 'Ada', age: 36, address: { city: 'London' } },
  { id: 2, name: 'Bo', age: 17, address: { city: 'Oslo' } },
  { id: 3, name: 'Cy', age: 50, address: { city: 'London' } },
  { id: 4, name: 'Di', address: {} },
];

const one = (input, step) => transform(input, [step]);
const names = (list) => list.map((person) => person.name).join(' ');

test('without steps the input stays', () => {
  assert.deepEqual(transform({ a: [1, null] }, []), { a: [1, null] });
});

test('pick, omit and rename work on an object and on a list of objects', () => {
  assert.deepEqual(one({ a: 1, b: 2 }, { op: 'pick', keys: ['b', 'z'] }), { b: 2 });
  assert.deepEqual(one([{ a: 1, b: 2 }], { op: 'omit', keys: ['b'] }), [{ a: 1 }]);
  assert.deepEqual(one({ a: 1, b: 2 }, { op: 'rename', names: { a: 'z', c: 'd' } }), { z: 1, b: 2 });
});

test('map follows paths; what is missing becomes null', () => {
  assert.deepEqual(one(people, { op: 'map', path: 'address.city' }), ['London', 'Oslo', 'London', null]);
  assert.deepEqual(one([[1, 2], [3]], { op: 'map', path: '1' }), [2, null]);
  assert.deepEqual(one([{ a: { b: 1 } }], { op: 'map', set: { c: 'a.b' } }), [{ a: { b: 1 }, c: 1 }]);
});

test('filter: every comparison, and all of them must hold', () => {
  for (const [where, expected] of [
    [{ age: { gte: 36 } }, 'Ada Cy'],
    [{ age: { lt: 36 } }, 'Bo'],
    [{ age: { gt: 17, lte: 36 } }, 'Ada'],
    [{ name: 'Di' }, 'Di'],
    [{ name: { ne: 'Di' }, 'address.city': 'London' }, 'Ada Cy'],
    [{ id: { in: [2, 4, '1'] } }, 'Bo Di'],
    [{ name: { contains: 'd' } }, 'Ada'],
    [{ age: { exists: false } }, 'Di'],
    [{ address: { eq: { city: 'Oslo' } } }, 'Bo'],
    [{ age: { gt: 'x' } }, ''],
  ]) {
    assert.equal(names(one(people, { op: 'filter', where })), expected, JSON.stringify(where));
  }
});

test('sort is stable, by several paths, and puts what is missing last in both orders', () => {
  assert.equal(names(one(people, { op: 'sort', by: 'age' })), 'Bo Ada Cy Di');
  assert.equal(names(one(people, { op: 'sort', by: 'age', order: 'desc' })), 'Cy Ada Bo Di');
  assert.equal(names(one(people, { op: 'sort', by: ['address.city', 'name'], order: 'desc' })), 'Bo Cy Ada Di');
  assert.deepEqual(one([3, 'a', 1, null, true], { op: 'sort' }), [true, 1, 3, 'a', null]);
});

test('flatten, group, unique, slice, count and summarize', () => {
  assert.deepEqual(one([1, [2, [3]]], { op: 'flatten' }), [1, 2, [3]]);
  assert.deepEqual(one([1, [2, [3]]], { op: 'flatten', depth: 2 }), [1, 2, 3]);
  const groups = one(people, { op: 'group', by: 'address.city' });
  assert.deepEqual(Object.entries(groups).map(([city, list]) => [city, names(list)]), [
    ['London', 'Ada Cy'],
    ['Oslo', 'Bo'],
    ['null', 'Di'],
  ]);
  assert.deepEqual(one([{ a: 1, b: 2 }, { b: 2, a: 1 }, { a: 2 }], { op: 'unique' }), [{ a: 1, b: 2 }, { a: 2 }]);
  assert.equal(names(one(people, { op: 'unique', by: 'address.city' })), 'Ada Bo Di');
  assert.deepEqual(one([1, 2, 3, 4], { op: 'slice', from: 1, to: -1 }), [2, 3]);
  assert.equal(one(people, { op: 'count' }), 4);
  assert.deepEqual(one(people, { op: 'summarize', path: 'age' }), { count: 3, sum: 103, min: 17, max: 50, mean: 103 / 3 });
  assert.deepEqual(one([], { op: 'summarize' }), { count: 0, sum: 0, min: null, max: null, mean: null });
});

test('steps run one after another and do not change the input', () => {
  const before = structuredClone(people);
  const result = transform(people, [
    { op: 'filter', where: { age: { exists: true } } },
    { op: 'sort', by: 'age', order: 'desc' },
    { op: 'slice', to: 2 },
    { op: 'map', path: 'name' },
  ]);
  assert.deepEqual(result, ['Cy', 'Ada']);
  assert.deepEqual(people, before);
});

test('names of prototypes are data like any other', () => {
  const input = JSON.parse('{"__proto__": {"x": 1}, "constructor": 2}');
  const picked = one(input, { op: 'pick', keys: ['__proto__'] });
  assert.equal(JSON.stringify(picked), '{"__proto__":{"x":1}}');
  assert.equal({}.x, undefined);
  assert.deepEqual(one([{}], { op: 'map', path: 'constructor.name' }), [null]);
  assert.deepEqual(one([[1]], { op: 'map', path: 'length' }), [null]);
});

test('each mistake names the step and what is expected', () => {
  for (const [input, steps, expected] of [
    [1, {}, '"steps" must be a list'],
    [1, Array(MOST_STEPS + 1).fill({ op: 'count' }), '64 at most'],
    [1, [7], 'step 1: must be an object with "op"'],
    [[], [{ op: 'count' }, { op: 'nope' }], 'step 2 (nope): "op" must be one of pick'],
    [[], [{ op: 'toString' }], '"op" must be one of'],
    [[], [{ op: 'count', by: 'x' }], '"by" is not an option; it takes none'],
    [{}, [{ op: 'sort' }], 'step 1 (sort): needs a list, not an object'],
    [[1], [{ op: 'pick', keys: ['a'] }], 'needs an object or a list of objects, not a number'],
    [[], [{ op: 'pick' }], '"keys" must be a list of names'],
    [[], [{ op: 'map' }], 'give either "path"'],
    [[], [{ op: 'filter', where: { a: { like: 1 } } }], '"like" is no comparison; use eq, ne'],
    [[], [{ op: 'filter', where: { a: { in: 1 } } }], '"in" needs a list'],
    [[], [{ op: 'sort', by: 3 }], '"by" must be a path'],
    [[], [{ op: 'sort', order: 'up' }], '"order" must be asc or desc'],
    [[], [{ op: 'flatten', depth: 0 }], '"depth" must be a whole number from 1 to 32'],
    [[{ a: [] }], [{ op: 'group', by: 'a' }], '"by" leads to an object or a list'],
  ]) {
    assert.throws(
      () => transform(input, steps),
      (error) => error instanceof Mistake && error.message.includes(expected),
      `${JSON.stringify(steps).slice(0, 80)} should say ${expected}`,
    );
  }
});
