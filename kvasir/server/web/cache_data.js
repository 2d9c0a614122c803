// What the numbers of GET /cache mean. Deliberately without a page: values in, values out.

export function bytesText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) {
    bytes /= 1024;
    ++unit;
  }
  return `${unit > 0 && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

// "layers 0–3, 5"
export function layersText(layers) {
  const parts = [];
  for (let i = 0; i < layers.length; ++i) {
    const first = layers[i];
    while (layers[i + 1] === layers[i] + 1) ++i;
    parts.push(layers[i] > first ? `${first}–${layers[i]}` : `${first}`);
  }
  return `${layers.length > 1 ? 'layers' : 'layer'} ${parts.join(', ')}`;
}

// How many share a block, in the steps of the colours: 1, 2, 3, 4 and more.
export const sharingStep = (sharedBy) => Math.min(Math.max(sharedBy, 1), 4);

// What happened between two pictures. hitRate: null while no prompt came.
export function rates(before, now) {
  const seconds = (now.at_ms - before.at_ms) / 1000;
  const since = (name) => now.counters[name] - before.counters[name];
  if (seconds <= 0 || since('steps') < 0) return null;
  const prompt = since('prompt_tokens');
  return {
    generatedPerSecond: since('generated_tokens') / seconds,
    hitRate: prompt > 0 ? since('cached_tokens') / prompt : null,
  };
}

// The parts of the budget bar, as fractions of it.
export function budgetParts({budget, live, cached}) {
  const whole = Math.max(budget, 1);
  return [{name: 'live', bytes: live, share: live / whole},
          {name: 'cached', bytes: cached, share: cached / whole}];
}

export function runText(run, picture) {
  const {block_tokens: tokens, codecs} = picture;
  const last = run.first_block + run.blocks;
  const blocks = run.blocks === 1 ? `Block ${run.first_block}`
                                  : `Blocks ${run.first_block}–${last - 1}`;
  const sharers = run.shared_by === 1 ? 'one sequence only'
                                      : `shared by ${run.shared_by} sequences`;
  const tier = {live: 'in use now', cached: 'kept for reuse'}[run.tier] ?? run.tier;
  return `${blocks} (positions ${run.first_block * tokens}–${last * tokens - 1}): ${sharers}, ` +
    `${codecs[run.codec]}, ${tier}`;
}

// Blocks shown, and what they would be without sharing: { own, references }.
export function sharingOf(picture) {
  const ids = new Set();
  let references = 0;
  picture.sequences.forEach((sequence) => sequence.runs.forEach((runs, kind) => {
    const layers = picture.kinds[kind].layers.length;
    for (const run of runs) {
      references += run.blocks * layers;
      for (let i = 0; i < run.blocks; ++i) ids.add(`${kind}:${run.id + i}`);
    }
  }));
  let own = 0;
  for (const id of ids) own += picture.kinds[Number(id.split(':')[0])].layers.length;
  return {own, references};
}
