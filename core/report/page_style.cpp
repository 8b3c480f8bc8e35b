// SPDX-License-Identifier: Apache-2.0
#include "core/report/page_style.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "core/report/palette.h"

namespace starling::report {
namespace {

std::string variables(const Palette& palette) {
  std::string text =
      fmt::format("--page:{};--text:{};--muted:{};--rule:{};--surface:{};", palette.page,
                  palette.text, palette.muted, palette.line, palette.surface);
  for (std::size_t i = 0; i < palette.series.size(); ++i) {
    text += fmt::format("--s{}:{};", i, palette.series[i]);
  }
  return text;
}

// Of the drawings, on pages and in files.
constexpr std::string_view kPlotRules =
    R"(svg text{font-size:12px;font-variant-numeric:tabular-nums;fill:var(--muted)}
svg text.end{fill:currentColor;font-weight:600}
path.grid{fill:none;stroke:var(--rule);stroke-width:1}
path.base{fill:none;stroke:var(--muted);stroke-width:1}
path.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
path.predicted{stroke-width:1.8}
path.band{fill:currentColor;opacity:.16}
path.mark{fill:currentColor;stroke:var(--page);stroke-width:.8}
)";

constexpr std::string_view kRules = R"(*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1240px;margin:0 auto;padding:24px 24px 48px}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}
header p{margin:0;color:var(--muted);overflow-wrap:anywhere}
h2{font-size:1.2rem;line-height:1.3;margin:40px 0 4px}
.prose{margin:0 0 8px;color:var(--muted);max-width:75ch}
.headlines{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0 0}
.headlines+.prose{margin-top:12px}
.headlines div{background:var(--surface);border:1px solid var(--rule);border-radius:8px;padding:10px 14px}
.headlines dt{font-size:.8rem;color:var(--muted)}
.headlines dd{margin:0;font-size:1.35rem;line-height:1.25;font-weight:600;overflow-wrap:anywhere;
font-variant-numeric:tabular-nums}
.headlines small{display:block;font-size:.8rem;font-weight:400;color:var(--muted)}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:16px;margin-top:12px}
figure{margin:0;min-width:0;border:1px solid var(--rule);border-radius:8px;padding:14px 16px 10px;
break-inside:avoid}
figcaption{font-weight:600;margin-bottom:6px;overflow-wrap:anywhere}
.part{display:inline-block;max-width:100%;overflow-wrap:anywhere}
.legend{display:flex;flex-wrap:wrap;gap:2px 18px;list-style:none;margin:0 0 6px;padding:0;font-size:.85rem}
.legend li,.marked{display:flex;align-items:baseline}
.legend span{min-width:0;overflow-wrap:anywhere}
.swatch{position:relative;top:1px;margin-right:6px;flex:none}
.note,.empty{margin:6px 0 0;font-size:.85rem;color:var(--muted)}
.plot{display:block;width:100%;height:auto;overflow:visible}
.hint{fill:transparent}
.hint:hover{fill:currentColor;fill-opacity:.3}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr));gap:12px;margin-top:8px}
.panels+.prose{margin-top:8px}
.panels figcaption{font-size:.9rem;margin-bottom:2px}
.panels figure{padding:10px 12px 6px}
h3{font-size:1rem;margin:22px 0 6px}
.picture{display:block;width:100%;height:auto;max-height:460px;object-fit:contain}
.scroll{overflow-x:auto;margin-top:12px;border:1px solid var(--rule);border-radius:8px}
.scroll+p{margin-top:8px}
table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:6px 10px;text-align:left;white-space:nowrap}
th{white-space:normal;vertical-align:bottom;line-height:1.3;background:var(--surface);font-weight:600;color:var(--muted)}
td:first-child:not(.number){white-space:normal;min-width:12em;overflow-wrap:break-word}
td .part{white-space:nowrap}
tbody tr{border-top:1px solid var(--rule)}
.number{text-align:right}
.facts{display:grid;grid-template-columns:max-content 1fr;gap:4px 20px;margin:0;font-size:.92rem;align-content:start}
.facts dt{color:var(--muted);overflow-wrap:anywhere}
.facts dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.facts small{color:var(--muted)}
.grid>.facts{border:1px solid var(--rule);border-radius:8px;padding:14px 16px}
details{margin-top:16px}
summary{cursor:pointer;font-weight:600}
details .facts{margin-top:10px}
footer{margin-top:48px;padding-top:12px;border-top:1px solid var(--rule);font-size:.85rem;color:var(--muted);
overflow-wrap:anywhere}
@media (min-width:701px),print{.narrow{display:none}}
@media screen and (max-width:700px){.wide{display:none}main{padding:16px 14px 32px}figure{padding:12px 10px 8px}
.headlines{grid-template-columns:repeat(2,minmax(0,1fr));gap:8px}.headlines div{padding:8px 10px}
.headlines dd{font-size:1.15rem}h1{font-size:1.4rem}h2{margin-top:32px}
.facts{grid-template-columns:minmax(0,2fr) minmax(0,3fr);gap:4px 12px}
}
@media print{main{max-width:none;padding:0}.grid{grid-template-columns:1fr 1fr}.scroll{overflow:visible}
details:has(figure)::details-content{display:block;content-visibility:visible;block-size:auto}
table{font-size:7pt}th,td{padding:2px 4px}th,td,td .part{white-space:normal}}
)";

}  // namespace

std::string page_style() {
  std::string text = fmt::format(":root{{color-scheme:light dark;{}}}\n", variables(kLight));
  text += fmt::format("@media (prefers-color-scheme:dark){{:root{{{}}}}}\n", variables(kDark));
  for (int i = 0; i < static_cast<int>(kLight.series.size()); ++i) {
    text += fmt::format(".s{0}{{color:var(--s{0})}}\n", i);
  }
  return text + std::string(kRules) + std::string(kPlotRules);
}

std::string figure_style() {
  std::string text = "svg{font-family:Helvetica,Arial,sans-serif}\n";
  for (std::size_t i = 0; i < kLight.series.size(); ++i) {
    text += fmt::format(".s{}{{color:{}}}\n", i, kLight.series[i]);
  }
  std::string rules(kPlotRules);
  // Programs that read SVG files know no variables.
  const std::array<std::pair<std::string_view, std::string_view>, 3> variables = {
      {{"var(--muted)", kLight.muted}, {"var(--rule)", kLight.line}, {"var(--page)", kLight.page}}};
  for (const auto& [name, value] : variables) {
    for (std::size_t at = rules.find(name); at != rules.npos; at = rules.find(name)) {
      rules.replace(at, name.size(), value);
    }
  }
  return text + rules +
         fmt::format(
             "svg text.title{{font-size:14px;font-weight:600;fill:{0}}}\n"
             "svg text.name{{fill:{0}}}\n",
             kLight.text);
}

}  // namespace starling::report
