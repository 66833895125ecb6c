// The logs of the lab's components and of the programs on its real nodes.
import { html } from './vendor/htm-preact.js';
import { useEffect, useLayoutEffect, useRef, useState } from './vendor/hooks.js';
import { call, get, head, route } from './store.js';
import { Command, Empty } from './parts.js';
import { word } from './actions.js';

const most = 256 * 1024; // number of characters that the page keeps
const ownerOf = (l) => (l.instance ? get('instance', l.instance)?.name ?? l.instance : 'lab');
const pageOf = (l) => `#/logs/${l.instance ? `${encodeURIComponent(l.instance)}/` : ''}${encodeURIComponent(l.name)}`;

/** useLog follows a log: it reads the end of the log, and then the new text once a second. */
function useLog(path) {
  const [state, setState] = useState({ text: '' });
  useEffect(() => {
    let text = '';
    let next = '';
    let timer;
    let current = true;
    setState({ text });
    const read = async () => {
      try {
        const a = document.hidden ? null : await call('GET', `logs/${path}${next}`);
        if (!current) return;
        if (a) {
          next = `?after=${a.next}`;
          if (a.text || a.skipped) {
            text = ((a.skipped && text ? `${text}… the console omitted a part of the log …\n` : text) + a.text).slice(-most);
          }
          setState({ text, read: true });
        }
      } catch (e) {
        if (!current) return;
        setState({ text, error: e.message });
      }
      timer = setTimeout(read, 1000);
    };
    read();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [path]);
  return state;
}

function Tail({ log }) {
  const { text, read, error } = useLog(`${log.instance ? `${encodeURIComponent(log.instance)}/` : ''}${encodeURIComponent(log.name)}`);
  const [filter, setFilter] = useState('');
  const box = useRef(null);
  const follow = useRef(true);
  const lines = text.split('\n');
  const shown = filter ? lines.filter((l) => l.toLowerCase().includes(filter.toLowerCase())).join('\n') : text;
  useLayoutEffect(() => {
    if (follow.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown]);
  return html`<div class="row wrap"><h2 class="big">${log.name} <span class="muted small">of ${ownerOf(log)}</span></h2><span class="grow"></span>
      <input class="field" type="search" aria-label="Filter lines" placeholder="Filter lines" value=${filter} onInput=${(e) => setFilter(e.currentTarget.value)} /></div>
    ${error && html`<div class="banner" role="status"><b>The log is not current.</b><span>${error}</span></div>`}
    <pre class="log" ref=${box} tabindex="0" role="region" aria-label=${`Log of ${log.name}`} onScroll=${(e) => (follow.current = e.currentTarget.scrollHeight - e.currentTarget.scrollTop - e.currentTarget.clientHeight < 40)}>${shown || (filter ? 'No line matches the filter.' : read ? 'The log is empty.' : 'Reading the log…')}</pre>
    <${Command} text=${`tail -n 100 -f ${word(log.path)}`} />`;
}

export function Logs() {
  const [list, setList] = useState(null);
  const enabled = Boolean(head.value?.logs);
  useEffect(() => {
    if (enabled) call('GET', 'logs').then((l) => setList(l.items), (e) => setList({ error: e.message }));
  }, [enabled, route.value]);
  if (!enabled) return html`<h1>Logs</h1><${Empty} title="This console has no logs">The console of a lab shows the logs of its components. 'allinone up' starts a lab.</${Empty}>`;
  if (list?.error) return html`<h1>Logs</h1><${Empty} title="The logs are not available">${list.error}</${Empty}>`;
  const [, a, b] = route.value;
  const chosen = !a ? list?.[0] : list?.find((l) => (b ? l.instance === a && l.name === b : !l.instance && l.name === a)) ?? list?.find((l) => !b && l.instance === a);
  const owners = Object.groupBy(list ?? [], ownerOf);
  return html`<h1>Logs</h1>
    ${Object.entries(owners).map(([owner, logs]) => html`<div class="tabs" role="navigation" aria-label=${`Logs of ${owner}`} key=${owner}><span class="muted small">${owner}</span>${logs.map((l) => html`<a key=${l.name} href=${pageOf(l)} aria-current=${l === chosen ? 'page' : undefined}>${l.name}</a>`)}</div>`)}
    ${chosen ? html`<${Tail} key=${pageOf(chosen)} log=${chosen} />` : list?.length ? html`<${Empty} title="This log does not exist">Choose another log above.</${Empty}>` : html`<p class="muted">${list ? 'No component has written a log.' : 'Reading the list of logs…'}</p>`}`;
}
