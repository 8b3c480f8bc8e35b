// SPDX-License-Identifier: Apache-2.0
// Text as HTML and SVG. Names come from users and from files of others: whatever is not written
// here as markup goes through escape().
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace starling::report {

// For element content and for attributes in double quotes. Control bytes and what is not UTF-8
// become U+FFFD, so that the page stays well-formed XML.
std::string escape(std::string_view text);

// The same of a run's name, "ring, local-steps 8": its parts, but for long ones, are in elements of
// class "part" where a line could break within them, which the page's style prevents.
std::string escape_name(std::string_view name);

// A number of SVG's user units, with a tenth at most: "12", "12.5".
std::string units(double value);

// "data:MIME;base64,...": a file within the page.
std::string data_uri(std::string_view mime, std::string_view content);

}  // namespace starling::report
