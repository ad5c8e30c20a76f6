#pragma once

namespace nvfp4::report {

/// The page's style sheet, first the colors of both schemes. In both, text has a contrast of at
/// least 4.5 and marks of at least 3.
inline constexpr const char* kStyle = R"(
:root {
  color-scheme: light dark;
  --ground: #fbfbfa; --card: #fff; --text: #1b1d21; --soft: #5b616b; --line: #dfe1e5;
  --accent: #1f6f43; --accent-soft: #d3e9dc; --bad: #b3261e;
  --s0: #1f6feb; --s1: #c2410c; --s2: #15803d; --s3: #9333ea;
  --s4: #0e7490; --s5: #be123c; --s6: #7c6a00; --s7: #525b6b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #121417; --card: #1a1d21; --text: #e7e9ec; --soft: #a2a9b4; --line: #32373e;
    --accent: #5fc48d; --accent-soft: #21442f; --bad: #ff8a80;
    --s0: #6cb0ff; --s1: #ff9d66; --s2: #5fd38a; --s3: #c9a0ff;
    --s4: #54c8dd; --s5: #ff8fa8; --s6: #d9c65a; --s7: #a9b2c0;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 68rem; padding: 1.5rem clamp(0.75rem, 3vw, 2rem) 3rem;
  background: var(--ground); color: var(--text);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 0.75rem; }
h2 { font-size: 1.15rem; margin: 0 0 0.75rem; }
p { margin: 0.5rem 0; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 0.75rem;
  margin-top: 1rem; padding: 1rem clamp(0.75rem, 2.5vw, 1.5rem) 1.25rem;
}
.soft, figcaption, th, .axis { color: var(--soft); }
.paths { display: grid; grid-template-columns: auto 1fr; gap: 0 0.75rem; margin: 0; }
.paths dd { margin: 0; overflow-wrap: anywhere; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(13rem, 50% - 0.375rem), 1fr));
  gap: 0.75rem; list-style: none; margin: 1rem 0 0; padding: 0;
}
.tiles li {
  background: var(--card); border: 1px solid var(--line); border-radius: 0.75rem;
  padding: 0.6rem 0.9rem 0.7rem;
}
.tiles b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: 0.85rem; }
.sizes { display: grid; gap: 0.75rem; }
.bar { background: var(--line); border-radius: 0.3rem; height: 0.9rem; overflow: hidden; }
.bar i { background: var(--accent); display: block; height: 100%; }
figure { margin: 0 0 1rem; }
figcaption { font-size: 0.9rem; margin-bottom: 0.6rem; }
svg.defs { position: absolute; }
.legend {
  display: flex; flex-wrap: wrap; gap: 0.15rem 1.1rem; list-style: none; margin: 0 0 0.75rem;
  padding: 0; font-size: 0.9rem;
}
.legend svg { vertical-align: -1px; }
.plot { margin: 0.75rem 0.6rem 0 4.4rem; position: relative; }
.plot > svg { display: block; height: 17rem; overflow: visible; width: 100%; }
.plot .ys span {
  font-size: 0.8rem; position: absolute; right: calc(100% + 0.7rem); transform: translateY(-50%);
  white-space: nowrap;
}
.ys { height: 17rem; position: absolute; width: 100%; pointer-events: none; }
.xs, .under { color: var(--soft); font-size: 0.8rem; height: 1.5rem; position: relative; }
.ys { color: var(--soft); }
.xs span, .scales span { position: absolute; top: 0.35rem; transform: translateX(-50%); }
.axis { font-size: 0.8rem; margin: 0; text-align: center; }
.grid line, .base { stroke: var(--line); }
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); }
.s3 { color: var(--s3); } .s4 { color: var(--s4); } .s5 { color: var(--s5); }
.s6 { color: var(--s6); } .s7 { color: var(--s7); }
g[class^=s] line { stroke: currentColor; stroke-opacity: 0.45; stroke-width: 1.5; }
use { fill: currentColor; }
.bars { display: block; height: 9rem; overflow: visible; width: 100%; }
.bars rect { fill: var(--accent); }
.codes { display: grid; grid-template-columns: repeat(16, 1fr); text-align: center; }
.codes span { padding-top: 0.2rem; }
.scales sup { line-height: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
caption { color: var(--soft); font-size: 0.9rem; padding-bottom: 0.5rem; text-align: left; }
th, td { padding: 0.35rem 0.6rem; text-align: right; vertical-align: top; white-space: nowrap; }
th { font-size: 0.85rem; font-weight: 600; vertical-align: bottom; }
tbody tr { border-top: 1px solid var(--line); }
th:first-child, td:first-child, .text { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
tbody th { color: var(--text); font-size: 1rem; font-weight: 400; overflow-wrap: anywhere;
  white-space: normal; min-width: 11rem; }
.bad { color: var(--bad); font-weight: 600; }
details { margin-top: 0.5rem; }
summary { cursor: pointer; padding: 0.25rem 0; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
footer { color: var(--soft); font-size: 0.85rem; margin-top: 1.25rem; }
@media (max-width: 34rem) {
  .plot { margin-left: 3.6rem; }
  .plot > svg, .ys { height: 14rem; }
  .codes { font-size: 0.62rem; }
  th, td { padding: 0.35rem 0.45rem; }
  tbody th { min-width: 8rem; }
}
@media print { section { break-inside: avoid; } }
)";

}  // namespace nvfp4::report
