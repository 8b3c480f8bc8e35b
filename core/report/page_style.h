// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace starling::report {

// The page's CSS: colours of both schemes, two columns where there is room, one on phones and
// paper.
std::string page_style();

// Of a drawing in a file of its own: the light colours, without variables.
std::string figure_style();

}  // namespace starling::report
