/** Who holds the devices, what will happen to them, and what a person can do about it. */
import * as React from 'react';

import type { IHolder, IOrphan, Reading } from '../types.js';
import { bytes, countdown, duration, fateWords, holderName, idleWords, known, stateWords } from '../words.js';
import { Act, Asking, Section, useShared, useSeconds } from './context.js';

export function Holders(): JSX.Element {
  const { model, trans } = useShared();
  useSeconds();
  const holders = model.holders?.holders.filter(h => h.holds) ?? [];
  const orphans = model.holders?.orphans ?? [];
  return (
    <Section id="holders" title={trans.__('Notebooks holding devices')}>
      {!model.holders && <Asking />}
      {model.holders && holders.length + orphans.length === 0 && (
        <p className="jp-gpupanel-note">{trans.__('No notebook of this server holds a device.')}</p>
      )}
      {holders.length + orphans.length > 0 && (
        <table aria-live="off">
          <thead>
            <tr>
              <th scope="col">{trans.__('Notebook')}</th>
              <th scope="col" className="jp-gpupanel-number">
                {trans.__('Memory')}
              </th>
            </tr>
          </thead>
          {holders.map(holder => (
            <HolderRows key={holder.holder_id} holder={holder} />
          ))}
          {orphans.map(orphan => (
            <OrphanRows key={orphan.orphan_id} orphan={orphan} />
          ))}
        </table>
      )}
    </Section>
  );
}

/** Who it is and what it holds; below it, what it does, what will happen to it, and the buttons. */
function Rows(props: { id: string; head: React.ReactNode; held: Reading; children: React.ReactNode }): JSX.Element {
  const { trans } = useShared();
  return (
    <tbody className="jp-gpupanel-holder" data-holder={props.id}>
      <tr>
        <th scope="rowgroup">{props.head}</th>
        <td className="jp-gpupanel-number">{bytes(props.held, trans)}</td>
      </tr>
      <tr>
        <td colSpan={2}>{props.children}</td>
      </tr>
    </tbody>
  );
}

function HolderRows({ holder }: { holder: IHolder }): JSX.Element {
  const { model, actions, trans } = useShared();
  const name = holderName(holder, trans);
  const kept = holder.keep ? holder.keep.until_in_s - model.passed_s : 0;
  const fate = kept > 0 ? '' : fateWords(holder.reaper, model.passed_s, trans);
  const link = (
    <button
      type="button"
      className="jp-gpupanel-link"
      title={holder.path}
      onClick={() => void actions.openNotebook(holder.path)}
    >
      {name}
    </button>
  );
  return (
    <Rows id={holder.holder_id} head={holder.path ? link : name} held={holder.held_bytes}>
      <div className="jp-gpupanel-state">
        {stateWords(holder.state, trans)} {idleWords(holder.idle_s, model.passed_s, trans)}
      </div>
      {kept > 0 && (
        <div className="jp-gpupanel-state" title={holder.keep?.why}>
          {trans.__('kept for another %1', countdown(kept))}
        </div>
      )}
      {fate && (
        <div className="jp-gpupanel-fate" title={holder.reaper.sentence}>
          {fate}
        </div>
      )}
      <div className="jp-gpupanel-buttons">
        <Act label={trans.__('Keep 1 h')} about={name} onClick={() => actions.keep(holder)} />
        {kept > 0 && <Act label={trans.__('End keep')} about={name} onClick={() => actions.endKeep(holder)} />}
        <Act label={trans.__('Release now …')} about={name} onClick={() => actions.release(holder)} />
      </div>
    </Rows>
  );
}

function OrphanRows({ orphan }: { orphan: IOrphan }): JSX.Element {
  const { model, actions, trans } = useShared();
  const name = orphan.path ? holderName(orphan, trans) : trans.__('process %1', orphan.pid);
  const gone = known(orphan.gone_ago_s);
  const fate = fateWords(orphan.reaper, model.passed_s, trans);
  return (
    <Rows id={orphan.orphan_id} head={<span title={orphan.path}>{name}</span>} held={orphan.held_bytes}>
      <div className="jp-gpupanel-state">
        {trans.__('orphan: its kernel is gone')}{' '}
        {gone !== undefined && trans.__('for %1', duration(gone + model.passed_s, trans))}
      </div>
      {fate && <div className="jp-gpupanel-fate">{fate}</div>}
      <div className="jp-gpupanel-buttons">
        {orphan.certain ? (
          <Act label={trans.__('End …')} about={name} onClick={() => actions.endOrphan(orphan)} />
        ) : (
          <span className="jp-gpupanel-soft">{trans.__('not certainly ours, so it is not touched')}</span>
        )}
      </div>
    </Rows>
  );
}
