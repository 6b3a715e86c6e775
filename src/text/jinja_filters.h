// The filters, in two files: texts and numbers (jinja_filters.cpp), lists and mappings (jinja_list_filters.cpp).
#pragma once

#include <utility>
#include <vector>

#include "text/jinja_interpreter.h"

namespace slideway {

std::vector<std::pair<const char*, JinjaFilter>> jinja_list_filters();

}  // namespace slideway
