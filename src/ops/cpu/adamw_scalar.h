// AdamW one parameter at a time: what ops/adamw.h means, bit for bit.
#pragma once

#include "ops/adamw.h"

namespace slideway {

void adamw_scalar(const AdamwRange& range, const AdamwStep& step, AdamwPiece piece);

}  // namespace slideway
