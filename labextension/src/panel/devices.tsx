/** The devices of the server's machine. */
import * as React from 'react';

import { activity, sparkline } from '../devices.js';
import type { IDevice } from '../types.js';
import { bytes, known, percent, why } from '../words.js';
import { Asking, Meter, Section, useShared } from './context.js';

export function Devices(): JSX.Element {
  const { model, trans } = useShared();
  const answer = model.devices;
  const words =
    answer?.state === 'no device'
      ? trans.__('No GPU on the server’s machine. %1', answer.reason)
      : answer?.state === 'unknown'
        ? trans.__('The devices cannot be read. %1', answer.reason)
        : '';
  return (
    <Section id="devices" title={trans.__('Devices')} note={model.status?.devices.simulated ? trans.__('simulated') : ''}>
      {!answer && <Asking />}
      {words && <p className="jp-gpupanel-note">{words}</p>}
      {answer && answer.devices.length > 0 && (
        <ul className="jp-gpupanel-list">
          {answer.devices.map(device => (
            <Device key={device.uuid || device.index} device={device} />
          ))}
        </ul>
      )}
    </Section>
  );
}

function Device({ device }: { device: IDevice }): JSX.Element {
  const { model, trans } = useShared();
  const [used, total] = [known(device.used_bytes), known(device.total_bytes)];
  const ratio = activity(device);
  const memory = `${bytes(device.used_bytes, trans)} / ${bytes(device.total_bytes, trans)}`;
  const reason = device.mig
    ? trans.__('MIG: split into instances, whose activity is not told for the whole.')
    : device.state === 'lost'
      ? trans.__('Lost: it needs a reset. %1', device.reason)
      : device.state === 'unknown'
        ? trans.__('Not read this time. %1', device.reason)
        : ratio === undefined
          ? trans.__('Activity n/a: %1', why(device.utilisation_ratio) || trans.__('the driver does not tell it'))
          : '';
  const others = device.unattributed;
  const foreign = others ? known(others.held_bytes) ?? 0 : 0;
  return (
    <li className="jp-gpupanel-device">
      <div className="jp-gpupanel-line">
        <span className="jp-gpupanel-name" title={device.uuid}>
          {device.index} · {device.name}
        </span>
        <span className="jp-gpupanel-number">{ratio === undefined ? trans.__('n/a') : trans.__('%1 active', percent(ratio, trans))}</span>
      </div>
      <div className="jp-gpupanel-gauges">
        <svg className="jp-gpupanel-sparkline" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">
          <path d={sparkline(model.history(device.uuid), Date.now())} />
        </svg>
        <div>
          <Meter
            ratio={used !== undefined && total ? used / total : undefined}
            label={trans.__('Memory of device %1', device.index)}
            words={memory}
          />
          <span className="jp-gpupanel-soft jp-gpupanel-number">{memory}</span>
        </div>
      </div>
      {reason && <p className="jp-gpupanel-note">{reason}</p>}
      {foreign > 0 && (
        <p className="jp-gpupanel-note" title={others?.why}>
          {trans.__('%1 held by others than the notebooks of this server', bytes(foreign, trans))}
        </p>
      )}
    </li>
  );
}
