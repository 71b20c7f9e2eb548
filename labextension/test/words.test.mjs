import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as words from '../lib/words.js';
import { golden, trans } from './golden.mjs';

const HOUR = 3600;

test('bytes in three digits, and no number is n/a', () => {
  assert.equal(words.bytes(0, trans), '0 B');
  assert.equal(words.bytes(512, trans), '512 B');
  assert.equal(words.bytes(1536, trans), '1.5 KiB');
  assert.equal(words.bytes(92 * 2 ** 30, trans), '92.0 GiB');
  assert.equal(words.bytes(140 * 2 ** 30, trans), '140 GiB');
  assert.equal(words.bytes(1000 * 2 ** 20, trans), '1.0 GiB');
  assert.equal(words.bytes({ missing: 'not read' }, trans), 'n/a');
});

test('a missing number is never 0', () => {
  assert.equal(words.known({ missing: 'x' }), undefined);
  assert.equal(words.known(null), undefined);
  assert.equal(words.known(0), 0);
  assert.equal(words.known({ value: 0.2, low: 0.1, high: 0.3 }), 0.2);
  assert.equal(words.why({ missing: 'not read' }), 'not read');
  assert.equal(words.percent({ missing: 'x' }, trans), 'n/a');
  assert.equal(words.percent(0, trans), '0 %');
  assert.equal(words.percent(0.004, trans), '<1 %');
});

test('durations at a glance', () => {
  assert.equal(words.duration(0, trans), '0 s');
  assert.equal(words.duration(119, trans), '119 s');
  assert.equal(words.duration(42 * 60, trans), '42 min');
  assert.equal(words.duration(24 * HOUR, trans), '24 h');
  assert.equal(words.duration(2 * HOUR + 5 * 60, trans), '2 h 5 min');
  assert.equal(words.duration(50 * HOUR, trans), '2 d 2 h');
});

test('countdowns to the second, never below zero', () => {
  assert.equal(words.countdown(245), '4:05');
  assert.equal(words.countdown(244.2), '4:05');
  assert.equal(words.countdown(3723), '1:02:03');
  assert.equal(words.countdown(-3), '0:00');
});

test('what happens to a holder, from the golden answer', () => {
  const [training, waiting] = golden('holders').holders;
  assert.equal(words.fateWords(training.reaper, 0, trans), '');
  assert.equal(words.fateWords(waiting.reaper, 0, trans), 'its unused memory is freed in 4:05');
  assert.equal(words.fateWords(waiting.reaper, 10, trans), 'its unused memory is freed in 3:55');
  assert.match(words.fateWords({ ...waiting.reaper, dry_run: true }, 0, trans), /dry run/);
  assert.equal(words.fateWords({ ...waiting.reaper, acting: 'shutdown' }, 0, trans), 'now: it is shut down');
  assert.equal(words.idleWords(waiting.idle_s, 5, trans), 'for 56 min');
  assert.equal(words.idleWords(training.idle_s, 5, trans), '');
});

test('every state and action of the protocol has words', () => {
  for (const state of ['training', 'running a cell', 'finished and holding', 'background work']) {
    assert.ok(words.stateWords(state, trans));
  }
  assert.equal(words.stateWords('something new', trans), 'something new');
  assert.ok(words.takes('free') && !words.takes('warn') && !words.takes('none'));
});

test('a notice changes once a minute', () => {
  const holder = golden('holders').holders[1];
  const said = due_in_s => words.noticeWords({ ...holder, reaper: { ...holder.reaper, due_in_s } }, trans);
  assert.equal(said(245), 'explore.ipynb is idle and holds a device: in less than 5 min its unused memory is freed.');
  assert.equal(said(241), said(300));
  assert.equal(said(5), 'explore.ipynb is idle and holds a device: in less than a minute its unused memory is freed.');
  assert.equal(said({ missing: 'nothing is due' }), 'explore.ipynb is idle and holds a device.');
});

test('what was done, and where hours are lost', () => {
  assert.equal(words.doneWords('shutdown', 'not released', trans), 'shut down · device not free');
  assert.equal(words.doneWords('new', 'newer', trans), 'new · newer');
  for (const { place } of golden('ledger').losses) {
    assert.match(words.placeWords(place, trans), /^[A-Z]/);
  }
});

test('names of holders', () => {
  assert.equal(words.holderName({ path: 'a/b.ipynb' }, trans), 'b.ipynb');
  assert.equal(words.holderName({ path: '', kernel_id: '0123456789' }, trans), 'kernel 01234567');
  assert.equal(words.holderName({ path: '', pid: 12 }, trans), 'process 12');
});

test('the policy as sentences', () => {
  const { reaper } = golden('status');
  assert.deepEqual(words.policyWords(reaper, trans), [
    'After 1 h of idleness: its unused memory is freed. Warns 5 min before.',
    'What is left of dead kernels is only reported.',
    'Left alone: keep/*.'
  ]);
  assert.deepEqual(words.policyWords({ ...reaper, enabled: false }, trans), ['Off: nobody is warned, and nothing is freed.']);
});

test('the status bar tells of idleness only when all who hold are idle', () => {
  const { holders } = golden('holders');
  assert.equal(words.statusWords(holders, 0.4, 0, trans), 'GPU 40 %');
  assert.equal(words.statusWords([holders[1]], 0, 0, trans), 'GPU idle 55 min');
  assert.equal(words.statusWords([], undefined, 0, trans), 'GPU n/a');
});
