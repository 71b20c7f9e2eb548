/** Where the GPU-hours went. */
import * as React from 'react';

import type { ILedgerGroup } from '../types.js';
import { baseName, gpuHours, known, percent, placeWords, why } from '../words.js';
import { Asking, Meter, Section, useShared } from './context.js';

const MOST_ROWS = 5;

export function Hours(): JSX.Element {
  const { model, trans } = useShared();
  const hours = model.hours;
  return (
    <Section id="hours" title={trans.__('GPU-hours')}>
      {hours === undefined ? (
        <Asking />
      ) : hours === null ? (
        <p className="jp-gpupanel-note">{trans.__('The ledger cannot be read. %1', model.status?.ledger.trouble ?? '')}</p>
      ) : (
        <>
          <Busy name={trans.__('Today')} total={hours.today.total} />
          <Busy name={trans.__('Last 7 days')} total={hours.week.total} />
          {model.status?.ledger.trouble && <p className="jp-gpupanel-note">{model.status.ledger.trouble}</p>}
          {hours.week.total.allocated_s > 0 && (
            <>
              <Rows
                head={trans.__('Lost in 7 days')}
                rows={hours.week.losses.map(loss => [placeWords(loss.place, trans), '', gpuHours(loss.seconds)])}
              />
              <Rows
                head={trans.__('Notebook')}
                ratio={trans.__('Busy')}
                rows={hours.week.groups
                  .slice(0, MOST_ROWS)
                  .map(group => [
                    group.key ? baseName(group.key) : trans.__('not attributed'),
                    percent(group.busy_ratio, trans),
                    gpuHours(group.allocated_s)
                  ])}
              />
            </>
          )}
        </>
      )}
    </Section>
  );
}

function Busy({ name, total }: { name: string; total: ILedgerGroup }): JSX.Element {
  const { trans } = useShared();
  const words = trans.__('%1 of %2 GPU-hours busy', gpuHours(total.seconds.busy ?? 0), gpuHours(total.allocated_s));
  return (
    <div className="jp-gpupanel-busy">
      <div className="jp-gpupanel-line">
        <span>{name}</span>
        <span className="jp-gpupanel-number" title={why(total.busy_ratio)}>
          {percent(total.busy_ratio, trans)}
        </span>
      </div>
      <Meter ratio={known(total.busy_ratio)} label={name} words={words} />
      <span className="jp-gpupanel-soft">{words}</span>
    </div>
  );
}

function Rows(props: { head: string; ratio?: string; rows: string[][] }): JSX.Element {
  const { trans } = useShared();
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">{props.head}</th>
          {props.ratio && (
            <th scope="col" className="jp-gpupanel-number">
              {props.ratio}
            </th>
          )}
          <th scope="col" className="jp-gpupanel-number">
            {trans.__('GPU-hours')}
          </th>
        </tr>
      </thead>
      <tbody>
        {props.rows.map(([name, ratio, hours], i) => (
          <tr key={i}>
            <th scope="row">{name}</th>
            {props.ratio && <td className="jp-gpupanel-number">{ratio}</td>}
            <td className="jp-gpupanel-number">{hours}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
