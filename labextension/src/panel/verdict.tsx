/** The notebook in front: its last run, earlier ones, and its scaling curve. */
import { Notification } from '@jupyterlab/apputils';
import * as React from 'react';

import { labelWords, partName, parts, tryLine } from '../parts.js';
import type { IRemedy, IRun, IScalingMark } from '../types.js';
import { baseName, known, percent, stepTime } from '../words.js';
import { Act, Section, useShared } from './context.js';

const TOP = 3;
const HISTORY = 5;

export function ThisNotebook(): JSX.Element | null {
  const { runs, trans } = useShared();
  if (!runs?.path) {
    return null;
  }
  const { marks, run } = runs;
  const [last, ...earlier] = marks.runs;
  return (
    <Section id="notebook" title={trans.__('This notebook')} note={baseName(runs.path)}>
      {!last && (
        <p className="jp-gpupanel-note">
          {trans.__('No run yet. Put %1 on top of a training cell.', '%%gpuprof')}
        </p>
      )}
      {run && <Card run={run} />}
      {last && runs.absent && (
        <p className="jp-gpupanel-note">
          {trans.__('%1: %2. This server does not have the rest of the run.', last.name, labelWords(last.label, trans))}
        </p>
      )}
      {marks.scaling && <Curve scaling={marks.scaling} />}
      {earlier.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">{trans.__('Earlier run')}</th>
              <th scope="col">{trans.__('Verdict')}</th>
            </tr>
          </thead>
          <tbody>
            {earlier.slice(0, HISTORY).map(mark => (
              <tr key={mark.run_id}>
                <th scope="row" title={mark.run_id}>
                  {mark.name}
                </th>
                <td>{labelWords(mark.label, trans)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Section>
  );
}

function Card({ run }: { run: IRun }): JSX.Element {
  const { trans } = useShared();
  const measured = parts(run.shares);
  return (
    <article className="jp-gpupanel-card" aria-label={trans.__('Verdict of %1', run.name)}>
      <h3>
        {labelWords(run.verdict.label, trans)}
        {run.device.simulated && <span className="jp-gpupanel-soft"> {trans.__('simulated device')}</span>}
      </h3>
      <p>{run.verdict.sentence}</p>
      {run.verdict.doubts.map(doubt => (
        <p key={doubt} className="jp-gpupanel-note">
          {doubt}
        </p>
      ))}
      {measured.length > 0 && (
        <>
          <div className="jp-gpupanel-parts" aria-hidden="true">
            {measured.map(part => (
              <div key={part.key} data-part={part.key} style={{ flexGrow: part.share }} />
            ))}
          </div>
          <ul className="jp-gpupanel-legend" aria-label={trans.__('Parts of the step')}>
            {measured.map(part => (
              <li key={part.key}>
                <i data-part={part.key} aria-hidden="true" />
                {partName(part.key, run, trans)} <b>{percent(part.share, trans)}</b>
              </li>
            ))}
          </ul>
        </>
      )}
      {run.remedies.length > 0 && (
        <ol className="jp-gpupanel-remedies" aria-label={trans.__('Remedies')}>
          {run.remedies.slice(0, TOP).map(remedy => (
            <Remedy key={remedy.id} remedy={remedy} now={run.steps.mean_s} />
          ))}
        </ol>
      )}
    </article>
  );
}

function Remedy({ remedy, now }: { remedy: IRemedy; now: IRun['steps']['mean_s'] }): JSX.Element {
  const { trans } = useShared();
  const line = tryLine(remedy.setting);
  const copy = async () => {
    await navigator.clipboard.writeText(line);
    Notification.info(trans.__('Copied: %1', line), { autoClose: 3000 });
  };
  return (
    <li>
      <span title={remedy.how}>{remedy.title}</span>
      {known(remedy.predicted_step_s) !== undefined && (
        <div className="jp-gpupanel-soft">
          {trans.__('step %1 → %2, predicted', stepTime(now, trans), stepTime(remedy.predicted_step_s, trans))}
        </div>
      )}
      {line && (
        <div className="jp-gpupanel-buttons">
          <code>{line}</code>
          <Act label={trans.__('Copy')} about={line} onClick={copy} />
        </div>
      )}
    </li>
  );
}

/** Throughput over the number of devices, beside what perfect scaling would give. */
function Curve({ scaling }: { scaling: IScalingMark }): JSX.Element {
  const { trans } = useShared();
  const points = scaling.points;
  const first = points[0];
  const most = Math.max(...points.map(p => p.count), 1);
  const top = Math.max(...points.map(p => p.throughput), first ? (first.throughput / first.count) * most : 1);
  const at = (count: number, value: number) => `${(4 + (92 * count) / most).toFixed(1)} ${(58 - (54 * value) / top).toFixed(1)}`;
  return (
    <figure className="jp-gpupanel-curve">
      <figcaption>
        {trans.__('Scaling: %1', scaling.label)}
        {scaling.simulated && <span className="jp-gpupanel-soft"> {trans.__('simulated device')}</span>}
        <p>{scaling.sentence}</p>
      </figcaption>
      <svg viewBox="0 0 100 62" aria-hidden="true">
        {first && <path className="jp-gpupanel-ideal" d={`M${at(0, 0)}L${at(most, (first.throughput / first.count) * most)}`} />}
        <path d={points.map((p, i) => `${i ? 'L' : 'M'}${at(p.count, p.throughput)}`).join('')} />
        {points.map(p => {
          const [x, y] = at(p.count, p.throughput).split(' ');
          return <circle key={p.count} cx={x} cy={y} r="1.6" />;
        })}
      </svg>
      <table>
        <thead>
          <tr>
            <th scope="col">{trans.__('Devices')}</th>
            <th scope="col" className="jp-gpupanel-number">
              {trans.__('Samples/s')}
            </th>
          </tr>
        </thead>
        <tbody>
          {points.map(p => (
            <tr key={p.count}>
              <th scope="row">{p.count}</th>
              <td className="jp-gpupanel-number">{p.throughput.toPrecision(3)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </figure>
  );
}
