// response_format: what an answer must be.
//
//   {"type": "text"}                                             anything, as though it were absent
//   {"type": "json_object"}                                      any JSON object
//   {"type": "json_schema", "json_schema": {"name", "schema"}}   JSON of the schema, kept to the letter
//
// A schema that cannot be kept to the letter is a 400 that says why: never loosened, never ignored.
#pragma once

#include <memory>

#include "serve/fields.h"
#include "serve/served_model.h"

namespace slideway {

std::shared_ptr<const Grammar> read_response_format(Fields& body,
                                                    const ServedModel& model);  // null: anything

}  // namespace slideway
