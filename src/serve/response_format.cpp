#include "serve/response_format.h"

#include "serve/api_error.h"

namespace slideway {

std::shared_ptr<const Grammar> read_response_format(Fields& body, const ServedModel& model) {
  const Json* given = body.find("response_format");
  if (!given) return nullptr;
  Fields format(*given, "response_format");
  const std::string type = format.required_text("type");
  std::string schema;
  if (type == "json_schema") {
    const Json* inner = format.find("json_schema");
    if (!inner) fail_field("response_format.json_schema", "response_format.json_schema is missing");
    Fields fields(*inner, "response_format.json_schema");
    const Json* found = fields.find("schema");
    if (!found)
      fail_field("response_format.json_schema.schema", "response_format.json_schema.schema is missing");
    schema = dump(*found);
    (void)fields.flag("strict");  // it is kept to the letter in any case
    fields.ignore({"name", "description"});
    fields.finish();
  } else if (type != "json_object" && type != "text") {
    fail_field("response_format.type",
               "response_format.type should be text, json_object or json_schema, found ", type);
  }
  format.finish();
  if (type == "text") return nullptr;
  try {
    return type == "json_object" ? model.grammars->json_object() : model.grammars->json_schema(schema);
  } catch (const Error& error) {
    if (status_of(error.kind()) >= 500) throw;
    fail_field("response_format", error.what());
  }
}

}  // namespace slideway
