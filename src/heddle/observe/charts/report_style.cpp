// Colours are variables, set once for light and once for dark; everything else is drawn with them. c0 .. c10 tell
// curves apart (chosen to differ in lightness too), p0 .. p5 are the phases, h0 .. h10 the heat map's shades.
#include "heddle/observe/charts/report_style.h"

namespace heddle::observe {

std::string_view report_style() {
  return R"css(
:root {
  color-scheme: light dark;
  --page: #f5f4f0; --card: #ffffff; --ink: #1c1e22; --soft: #5d636e; --faint: #959ba5; --rule: #e3e0d9; --grid: #eeece7;
  --lane: #f3f1ec; --good: #17805c; --bad: #c2362f; --accent: #3a5fcd;
  --c0: #3a5fcd; --c1: #dd7a26; --c2: #1b957a; --c3: #9048c2; --c4: #cf3f72; --c5: #87861f; --c6: #2793bb; --c7: #7c6a5a;
  --c8: #b4392c; --c9: #4f9a2b; --c10: #8b929c;
  --p0: #4a6fdc; --p1: #e18a3b; --p2: #2aa285; --p3: #9a5bc9; --p4: #9aa0a9; --p5: #157a8c;
  --h0: #1e6f8e; --h1: #3f8ba6; --h2: #6aa9be; --h3: #9cc7d4; --h4: #cfe2e7; --h5: #f1eee8; --h6: #f6dcc2; --h7: #f1bd8d;
  --h8: #e8965a; --h9: #d76a30; --h10: #b04414;
  --shadow: 0 1px 2px rgb(30 25 10 / .05), 0 4px 16px rgb(30 25 10 / .04);
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #111316; --card: #1a1d21; --ink: #e8e9ec; --soft: #a3a9b3; --faint: #717883; --rule: #2c3037; --grid: #25292f;
    --lane: #20242a; --good: #55cfa3; --bad: #ff8078; --accent: #86a5ff;
    --c0: #86a5ff; --c1: #f2a35e; --c2: #4fcaa8; --c3: #c694f2; --c4: #f27fa9; --c5: #c7c45c; --c6: #67c5e6; --c7: #bba895;
    --c8: #ff8d7d; --c9: #90d46b; --c10: #8d939d;
    --p0: #7898f5; --p1: #eb9c57; --p2: #49bd9d; --p3: #ba87e6; --p4: #737a85; --p5: #3fa5b8;
    --h0: #7fd3f0; --h1: #5db2cf; --h2: #4390ab; --h3: #346d82; --h4: #2c4a57; --h5: #2a2d32; --h6: #523d2c; --h7: #7d5231;
    --h8: #b06a36; --h9: #dd8844; --h10: #ffb06b;
    --shadow: 0 1px 2px rgb(0 0 0 / .3);
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 40px 24px 56px; background: var(--page); color: var(--ink);
  font: 15px/1.5 Inter, system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; -webkit-font-smoothing: antialiased;
}
main, header, footer { max-width: 1200px; margin: 0 auto; }
header .brand { color: var(--accent); font-size: 12px; font-weight: 650; letter-spacing: .12em; text-transform: uppercase; }
h1 { margin: 4px 0 2px; font-size: 32px; line-height: 1.2; font-weight: 680; letter-spacing: -.02em; overflow-wrap: anywhere; }
.subtitle { color: var(--soft); }
.chips { display: flex; flex-wrap: wrap; gap: 8px; margin: 18px 0 0; padding: 0; list-style: none; }
.chips li { padding: 3px 11px; border: 1px solid var(--rule); border-radius: 99px; background: var(--card); font-size: 13px; }
.chips span { color: var(--soft); margin-right: 6px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(186px, 1fr)); gap: 14px; margin: 26px 0 0; }
.card { padding: 15px 18px 14px; border: 1px solid var(--rule); border-radius: 12px; background: var(--card);
  box-shadow: var(--shadow); }
.card .label { color: var(--soft); font-size: 13px; }
.card .value { margin: 1px 0; font-size: 25px; line-height: 1.3; font-weight: 640; letter-spacing: -.015em; }
.card .value small { font-size: 15px; font-weight: 500; color: var(--soft); letter-spacing: 0; }
.card .remark { color: var(--faint); font-size: 12.5px; line-height: 1.4; }
.card.words { grid-column: span 2; }
.card.words .value { font-size: 18px; }
.card.good .remark { color: var(--good); }
.card.bad .value, .card.bad .remark { color: var(--bad); }
h2 { margin: 40px 0 12px; font-size: 19px; font-weight: 650; letter-spacing: -.01em; }
.grid { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; }
.grid > .wide, .grid > :only-child { grid-column: 1 / -1; }
section { scroll-margin-top: 12px; }
section > .cards { margin: 0 0 16px; }
td.number + td:not(.number), th.number + th:not(.number) { padding-left: 20px; }
.contents { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 22px 0 0; padding: 0; list-style: none; font-size: 13.5px; }
.contents a { color: var(--accent); text-decoration: none; }
.contents a:hover { text-decoration: underline; }
.for-middle, .for-narrow, .for-print { display: none; }
.panel { padding: 16px 18px 12px; border: 1px solid var(--rule); border-radius: 12px; background: var(--card);
  box-shadow: var(--shadow); min-width: 0; }
figure { margin: 0; }
figcaption { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 16px; margin-bottom: 10px; font-size: 13px; }
figcaption .title { font-size: 14px; font-weight: 620; }
figcaption .note { color: var(--faint); }
.legend { display: flex; flex-wrap: wrap; gap: 3px 14px; margin-left: auto; color: var(--soft); }
.legend > span { display: inline-flex; align-items: center; gap: 6px; }
.legend i, .tip i { flex: none; display: inline-block; width: 12px; height: 4px; border-radius: 2px; background: currentColor; }
i.dot { width: 8px !important; height: 8px !important; border-radius: 50% !important; }
i.dash { background: repeating-linear-gradient(90deg, currentColor 0 4px, transparent 4px 7px) !important; width: 15px !important; }
figure[data-kind=lanes] .legend i { height: 10px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font-size: 11px; fill: var(--soft); }
svg .in-bar { fill: var(--card); }
svg .axis-label { fill: var(--faint); }
svg .grid { stroke: var(--grid); stroke-width: 1; display: inline; }
svg .axis { stroke: var(--faint); stroke-width: 1; stroke-opacity: .6; }
svg .line { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
svg .line.faint { stroke-width: 1; stroke-opacity: .33; }
svg .line.dashed { stroke-dasharray: 5 4; stroke-linecap: butt; stroke-width: 1.6; }
svg .area { fill: currentColor; fill-opacity: .72; }
svg .point { fill: currentColor; stroke: var(--card); stroke-width: 1.2; }
svg .level { stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 2 4; stroke-linecap: round; }
svg .level-label { fill: var(--soft); paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
svg .strong { fill: var(--ink); font-weight: 600; }
.explained { max-width: 100ch; margin: 10px 0 4px; color: var(--soft); font-size: 13.5px; overflow-wrap: anywhere; }
svg .cross { stroke: var(--faint); stroke-width: 1; }
svg .cell { fill: none; stroke: var(--ink); stroke-width: 1.5; }
svg .lane { fill: var(--lane); }
.hover { pointer-events: none; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); }
.c8 { color: var(--c8); } .c9 { color: var(--c9); } .c10 { color: var(--c10); }
.ink { color: var(--ink); }
.p0 { color: var(--p0); fill: var(--p0); } .p1 { color: var(--p1); fill: var(--p1); } .p2 { color: var(--p2); fill: var(--p2); }
.p3 { color: var(--p3); fill: var(--p3); } .p4 { color: var(--p4); fill: var(--p4); }
.p5 { color: var(--p5); fill: var(--p5); }
.h0 { fill: var(--h0); background: var(--h0); } .h1 { fill: var(--h1); background: var(--h1); }
.h2 { fill: var(--h2); background: var(--h2); } .h3 { fill: var(--h3); background: var(--h3); }
.h4 { fill: var(--h4); background: var(--h4); } .h5 { fill: var(--h5); background: var(--h5); }
.h6 { fill: var(--h6); background: var(--h6); } .h7 { fill: var(--h7); background: var(--h7); }
.h8 { fill: var(--h8); background: var(--h8); } .h9 { fill: var(--h9); background: var(--h9); }
.h10 { fill: var(--h10); background: var(--h10); }
.scale { display: inline-flex; align-items: center; margin-left: auto; color: var(--soft); }
.scale i { width: 16px; height: 10px; }
.scale span { margin: 0 7px; }
.canvas-frame { width: 100%; overflow-x: auto; }
canvas { display: block; width: 100%; cursor: crosshair; touch-action: pan-y; }
.tools { display: flex; flex-wrap: wrap; align-items: center; gap: 6px; margin: 0 0 10px; }
.tools span { margin-left: 8px; color: var(--faint); font-size: 12px; }
input[type=range] { flex: 1 1 160px; max-width: 480px; margin: 0; accent-color: var(--accent); cursor: pointer; }
button { padding: 3px 11px; border: 1px solid var(--rule); border-radius: 7px; background: none; color: var(--soft);
  font: inherit; font-size: 12.5px; cursor: pointer; }
button:hover { color: var(--ink); border-color: var(--faint); }
button.on { background: var(--lane); color: var(--ink); }
button:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.tip { position: fixed; z-index: 9; pointer-events: none; max-width: 340px; padding: 8px 12px; border: 1px solid var(--rule);
  border-radius: 9px; background: var(--card); box-shadow: 0 4px 20px rgb(0 0 0 / .18); font-size: 12.5px; line-height: 1.55; }
.tip b { display: block; font-weight: 620; overflow-wrap: anywhere; }
.tip div { display: flex; justify-content: space-between; gap: 18px; }
.tip div span:first-child { display: inline-flex; align-items: center; gap: 7px; color: var(--soft); }
table { width: 100%; border-collapse: collapse; font-size: 13px; }
caption { padding-bottom: 8px; text-align: left; font-size: 14px; font-weight: 620; }
th { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--rule); color: var(--soft); font-weight: 500; text-align: left; }
td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
td.mono { overflow-wrap: anywhere; }
tr:last-child td { border-bottom: 0; }
td.number, th.number { padding-left: 12px; padding-right: 0; text-align: right; white-space: nowrap; }
td.key { width: 46%; color: var(--soft); }
.grid > :only-child td.key { width: 28%; }
code, .mono, td.mono { font-family: ui-monospace, "SF Mono", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: .93em; }
.sample { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 14px; line-height: 1.65; }
.sample .prompt { color: var(--soft); }
.sample .said { color: var(--ink); border-left: 0; }
.sample-head { margin-bottom: 6px; color: var(--faint); font-size: 12.5px; }
footer { margin-top: 44px; color: var(--faint); font-size: 12.5px; }
pre { margin: 8px 0; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
details { padding: 3px 0; }
summary { cursor: pointer; font-weight: 600; }
.legend i, .scale i, .card, svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
@media (max-width: 820px) {
  body { padding: 24px 14px 40px; }
  h1 { font-size: 25px; }
  .grid { grid-template-columns: minmax(0, 1fr); }
  .for-wide { display: none; }
  .for-middle { display: block; }
  .tools span { display: none; }
}
@media (max-width: 560px) {
  .for-middle { display: none; }
  .for-narrow { display: block; }
  .panel { padding: 14px 12px 10px; }
  .cards { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 10px; }
  .card { padding: 11px 12px; }
  .card .value { font-size: 20px; }
  .legend, .scale { margin-left: 0; }
  .scale i { width: 12px; }
  /* A row of a table becomes a block: its name, and below it each value behind what it is. */
  table.rows, .rows tbody, .rows tr, .rows td { display: block; }
  .rows caption { display: block; }
  .cards .card:last-child:nth-child(odd) { grid-column: 1 / -1; }
  td.number + td:not(.number) { padding-left: 0; }
  .rows tr { padding: 7px 0; border-bottom: 1px solid var(--grid); }
  .rows tr.head { display: none; }
  .rows td { padding: 1px 0; border: 0; }
  .rows td:not(:first-child) { display: inline-block; margin-right: 18px; text-align: left; }
  .rows td:first-child { font-weight: 600; }
  .rows td:not(:first-child)::before { content: attr(data-label) "  "; white-space: pre; color: var(--soft); }
  .rows td:empty { display: none !important; }
  .grid > :only-child td.key { width: 44%; }
}
@page { margin: 14mm 12mm; }
@media print {
  body { background: none; padding: 0; font-size: 12px; }
  .panel, .card { box-shadow: none; break-inside: avoid; }
  tr { break-inside: avoid; }
  caption, thead, tbody tr:first-child { break-after: avoid; }
  tbody tr:last-child { break-before: avoid; }
  footer { margin-top: 8px; break-before: avoid; }
  h2, h3 { break-after: avoid; margin-top: 22px; }
  .grid { display: block; }
  .panel { margin-top: 10px; }
  .panel:has(table) { break-inside: auto; }
  .cards { grid-template-columns: repeat(auto-fit, minmax(100px, 1fr)); gap: 8px; }
  .card { padding: 9px 11px; }
  .card .value { font-size: 18px; }
  .for-wide, .for-narrow, .canvas-frame, .tools, .contents { display: none; }
  .for-middle, .for-print { display: block; }
}
)css";
}

}  // namespace heddle::observe
