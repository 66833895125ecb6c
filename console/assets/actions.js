// Actions. Each action has an API call and a command of the CLI that does the same. Some actions
// have an undo.
import { html } from './vendor/htm-preact.js';
import { useState } from './vendor/hooks.js';
import { signal } from './vendor/signals.js';
import { call, can, get } from './store.js';
import { tell, toast, Command } from './parts.js';

/** word quotes an argument of a shell command, if necessary. */
export const word = (s) => (/^[A-Za-z0-9_./:=@%+-]+$/.test(s) ? s : `'${String(s).replaceAll("'", `'\\''`)}'`);

const projectName = (id) => get('project', id)?.name ?? id;
/** inProject returns the flag for the project of an object, if this is not the default project. */
export const inProject = (o) => (o.project && projectName(o.project) !== 'default' ? ` --project ${word(projectName(o.project))}` : '');

const verbs = {
  start: { label: 'Start', undo: 'stop', primary: true },
  stop: { label: 'Stop', undo: 'start' },
  reboot: { label: 'Reboot' },
  crash: { label: 'Crash', undo: 'reboot', title: 'Cut the power. The cloud still shows the instance as running' },
};

function instanceAction(i, verb, list) {
  const { label, undo, primary, title } = verbs[verb];
  return {
    id: `instances.${verb}`, label, primary, title,
    command: `allinone cloud instances ${verb} ${word(i.name)}${inProject(i)}`,
    run: () => call('POST', `/v1/instances/${i.id}/${verb}`, undefined, i.project),
    said: `${label}: ${i.name}`,
    undo: list && undo ? () => perform(instanceAction(i, undo)) : undefined,
  };
}

const cli = { instance: 'instances', loadBalancer: 'load-balancers', disk: 'disks', snapshot: 'snapshots', fault: 'faults', hold: 'holds', address: 'addresses', route: 'routes', subnet: 'subnets', network: 'networks' };
export const apiNoun = { instance: 'instances', loadBalancer: 'loadBalancers', disk: 'disks', snapshot: 'snapshots', fault: 'faults', hold: 'holds', address: 'addresses', route: 'routes', subnet: 'subnets', network: 'networks' };

/** creation creates a deleted fault or hold again. */
function creation(kind, o) {
  const { name, labels, match, when, effect, kind: held, verb, target } = o;
  return { label: 'Undo', said: `Created ${name} again`, run: () => call('POST', `/v1/${cli[kind]}`, kind === 'fault' ? { name, labels, match, when, effect } : { name, labels, kind: held, verb, target }) };
}

/** removal returns an undo that deletes the objects in a list of [path of the kind, id, project]. */
export const removal = (said, list) => () => perform({ label: 'Undo', said, run: () => Promise.all(list.map(([path, id, project]) => call('DELETE', `/v1/${path}/${encodeURIComponent(id)}`, undefined, project))) });

export function deletion(kind, o) {
  const global = kind === 'fault' || kind === 'hold';
  return {
    id: `${apiNoun[kind]}.delete`, label: global ? 'Remove' : 'Delete…', danger: true,
    command: `allinone cloud ${cli[kind]} delete ${word(o.name)}${global ? '' : inProject(o)}`,
    run: () => call('DELETE', `/v1/${cli[kind]}/${encodeURIComponent(o.id)}`, undefined, global ? undefined : o.project),
    said: `Deleted ${o.name}`,
    confirm: global ? undefined : o.name,
    undo: global ? () => perform(creation(kind, o)) : undefined,
  };
}

const cancellable = ['create', 'start', 'attach', 'detach']; // verbs of operations that the cloud can cancel: see the transitions for the verb cancel

/** actionsFor returns the actions that an object allows in its current state. */
export function actionsFor(kind, o) {
  const list = [];
  if (kind === 'instance') {
    if (o.state === 'stopped') list.push('start');
    if (o.state === 'running') list.push('stop', 'reboot', 'crash');
    const out = list.map((v) => instanceAction(o, v, true));
    if (!['terminating', 'terminated'].includes(o.state)) out.push(deletion(kind, o));
    return out;
  }
  if (kind === 'operation') {
    const out = [];
    if (o.state === 'running' && o.heldBy) out.push({ id: 'holds.release', label: 'Release', primary: true, command: `allinone cloud operations release ${o.id}`, run: () => call('POST', `/v1/operations/${o.id}/release`), said: `Released ${o.id}` });
    if (o.state === 'running' && cancellable.includes(o.verb)) out.push({ id: 'operations.cancel', label: 'Cancel', command: `allinone cloud operations cancel ${o.id}${inProject(o)}`, run: () => call('POST', `/v1/operations/${o.id}/cancel`, undefined, o.project), said: `Cancelled ${o.id}` });
    return out;
  }
  if (kind === 'disk') {
    const out = (o.attachments ?? []).filter((a) => a.state === 'attached').map((a) => ({
      id: 'disks.detach', label: `Detach from ${get('instance', a.instance)?.name ?? a.instance}`,
      command: `allinone cloud disks detach ${word(o.name)} ${word(get('instance', a.instance)?.name ?? a.instance)}${inProject(o)}`,
      run: () => call('POST', `/v1/disks/${o.id}/detach`, { instance: a.instance }, o.project), said: `Detached ${o.name}`,
      undo: () => perform({ label: 'Undo', said: `Attached ${o.name} again`, run: () => call('POST', `/v1/disks/${o.id}/attach`, { instance: a.instance, readOnly: a.readOnly }, o.project) }),
    }));
    return [...out, deletion(kind, o)];
  }
  return apiNoun[kind] ? [deletion(kind, o)] : [];
}

export const asking = signal(null); // the action that waits for a confirmation
export const busy = signal(false);

/** perform runs an action and reports the result. The method run may return the undo of the action. */
export async function perform(action) {
  busy.value = true;
  toast.value = null; // an undo belongs to the last action
  try {
    const undo = await action.run();
    tell(action.said, 'ok', action.undo ?? (typeof undo === 'function' ? undo : undefined));
    return true;
  } catch (e) {
    tell(`${action.label}: ${e.message}`, 'bad');
    return false;
  } finally {
    busy.value = false;
  }
}

/** Actions shows a button for each action, and the equivalent command. */
export function Actions({ list, children }) {
  const [shown, setShown] = useState(''); // the label of the button that had the focus or the pointer last
  const allowed = list.filter((a) => can(a.id));
  if (!allowed.length) return list.length ? html`<p class="muted small">Your token has no permission for these actions.</p>` : null;
  const current = allowed.find((a) => a.label === shown) ?? allowed[0];
  return html`<div class="actions"><div class="row wrap">
    ${allowed.map((a) => html`<button type="button" key=${a.label} class=${a.primary ? 'primary' : a.danger ? 'danger' : ''} title=${a.title} aria-disabled=${busy.value}
      onMouseEnter=${() => setShown(a.label)} onFocus=${() => setShown(a.label)}
      onClick=${() => busy.value || (a.confirm ? (asking.value = a) : perform(a))}>${a.label}</button>`)}${children}</div>
    <${Command} text=${current.command} /></div>`;
}
