import assert from 'node:assert/strict';
import { test } from 'node:test';

import { activity, GAP_MS, meanActivity, remember, SPAN_MS, sparkline } from '../lib/devices.js';
import { planNotices, pressing } from '../lib/notices.js';
import { partName, parts, readMarks, tryLine } from '../lib/parts.js';
import { golden, trans } from './golden.mjs';

test('the activity is the counter that tells most, and n/a for MIG', () => {
  const [hopper, idle, mig] = golden('devices').devices;
  assert.equal(activity(hopper), 0.83);
  assert.equal(activity(idle), 0);
  assert.equal(activity(mig), undefined);
  assert.equal(activity({ ...hopper, state: 'lost' }), undefined);
  assert.equal(meanActivity([hopper, idle, mig]), 0.83 / 2);
  assert.equal(meanActivity([mig]), undefined);
});

test('the small curve forgets what is old and does not bridge gaps', () => {
  const samples = remember([{ at: 0, ratio: 1 }], { at: SPAN_MS + 1, ratio: 0.5 });
  assert.deepEqual(samples, [{ at: SPAN_MS + 1, ratio: 0.5 }]);
  assert.equal(sparkline([], 0), '');
  const now = 100_000;
  assert.equal(sparkline([{ at: now - 2000, ratio: 0 }, { at: now, ratio: 1 }], now), 'M99.3 19.0L100.0 1.0');
  const gap = sparkline([{ at: now - GAP_MS - 1, ratio: 0 }, { at: now, ratio: 1 }], now);
  assert.equal(gap.match(/M/g).length, 2);
  assert.equal(sparkline([{ at: now - 2000, ratio: 0 }, { at: now - 1000, ratio: undefined }, { at: now, ratio: 1 }], now).match(/M/g).length, 2);
});

test('the parts of a step leave out what is missing and what is nothing', () => {
  const run = golden('run');
  const found = parts(run.shares);
  assert.deepEqual(found.map(p => p.key), ['device_compute', 'exposed_input', 'epoch_start', 'other']);
  assert.ok(Math.abs(found.reduce((sum, p) => sum + p.share, 0) - 1) < 1e-9);
  assert.equal(partName('exposed_input', run, trans), 'input wait');
  assert.equal(partName('device_compute', { ...run, clock: 'host', device: { kind: 'cpu' } }, trans), 'compute (CPU)');
  assert.equal(tryLine(run.remedies[0].setting), '%gpuprof try num_workers=4');
  assert.equal(tryLine(''), '');
});

test('the marks of a notebook: newest run first, each once, and strangers are left alone', () => {
  const [run, scaling] = golden('marks');
  const older = { jupyter_gpuprof: { run: { ...run.jupyter_gpuprof.run, run_id: 'older', started_at: '2020' } } };
  const marks = readMarks([undefined, {}, { jupyter_gpuprof: null }, run, older, run, scaling]);
  assert.deepEqual(marks.runs.map(m => m.run_id), ['20260131-093000-a1b2', 'older']);
  assert.equal(marks.scaling.points.length, 4);
  assert.deepEqual(readMarks([{ jupyter_gpuprof: { run: 3, scaling: 'x' } }]), { runs: [], scaling: null });
});

test('one notice per kernel: shown, then updated, then taken away', () => {
  const { holders } = golden('holders');
  const { warn_before_s } = golden('status').reaper;
  const id = holders[1].holder_id;
  const first = planNotices(holders, new Set(), warn_before_s);
  assert.deepEqual([first.show.map(h => h.holder_id), first.update, first.dismiss], [[id], [], []]);
  const second = planNotices(holders, new Set([id]), warn_before_s);
  assert.deepEqual([second.show, second.update.map(h => h.holder_id)], [[], [id]]);
  assert.deepEqual(planNotices([holders[0]], new Set([id]), warn_before_s).dismiss, [id]);
});

test('nobody is told of what a dry run would do, of what is far off, or while it is kept', () => {
  const holder = golden('holders').holders[1];
  assert.ok(pressing(holder, 300));
  assert.ok(!pressing(holder, 200));
  assert.ok(!pressing({ ...holder, reaper: { ...holder.reaper, dry_run: true } }, 300));
  assert.ok(!pressing({ ...holder, holds: false }, 300));
  assert.ok(!pressing({ ...holder, keep: { until_in_s: 60, why: '' } }, 300));
});
