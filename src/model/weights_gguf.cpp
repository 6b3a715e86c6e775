#include <map>
#include <unordered_set>

#include "core/error.h"
#include "formats/gguf.h"
#include "model/families.h"
#include "model/weight_sources.h"

namespace slideway {
namespace {

bool is_q_or_k(Role role) {
  return role == Role::q_proj || role == Role::k_proj || role == Role::q_bias || role == Role::k_bias;
}

class GgufWeights : public WeightFiles {
 public:
  explicit GgufWeights(const std::filesystem::path& path) : file_(path) {
    path_ = path;
    refuse_split();
    config_ = load_config(file_);
    layout_ = make_layout(config_);
    check_tensors();
    permuted_ = find_family(config_.family)->gguf_permutes;
  }

  bool is_gguf() const override { return true; }
  std::string stored_type(const TensorSpec& spec) const override { return gguf_type_name(at(spec).type); }
  std::vector<std::filesystem::path> other_files() const override { return {}; }

  void read(const TensorSpec& spec, std::span<float> out) const override {
    const GgufTensor& tensor = at(spec);
    CHECK(std::int64_t(out.size()) == spec.elements(), spec.name);
    if (permuted_ && is_q_or_k(spec.role))
      read_permuted(spec, tensor, out);
    else
      file_.read_rows(tensor, 0, out);
    check_finite(spec, out, path_.string());
  }

 private:
  const GgufTensor& at(const TensorSpec& spec) const {
    const GgufTensor* tensor = file_.find_tensor(spec.gguf_name);
    if (!tensor)
      fail(ErrorKind::not_found, path_.string(), ": the tensor ", spec.gguf_name, " ", shape_text(spec.shape),
           " is missing");
    return *tensor;
  }

  void refuse_split() const {
    if (file_.find("split.count") && file_.integer("split.count") > 1)
      fail(ErrorKind::unsupported, path_.string(), ": this is one part of ", file_.integer("split.count"),
           " of a split GGUF; join the parts first (gguf-split --merge)");
  }

  void check_tensors() const {
    std::unordered_set<std::string> used = {"rope_freqs.weight"};
    for (const BlockLayout* block : layout_.blocks())
      for (const TensorSpec& spec : block->tensors) {
        const GgufTensor& tensor = at(spec);
        used.insert(tensor.name);
        if (tensor.shape != spec.shape)
          fail(ErrorKind::corrupt, path_.string(), ": the tensor ", tensor.name, " is ",
               shape_text(tensor.shape), "; ", shape_text(spec.shape), " is expected");
        if (!gguf_type_is_read(tensor.type))
          fail(ErrorKind::unsupported, path_.string(), ": the tensor ", tensor.name, " is stored as ",
               gguf_type_name(tensor.type), ", which is not read");
      }
    for (const GgufTensor& tensor : file_.tensors())
      if (!used.contains(tensor.name))
        fail(ErrorKind::unsupported, path_.string(), ": the tensor ", tensor.name, " ",
             shape_text(tensor.shape), " has no place in a ", config_.family, " model");
  }

  // GGUF keeps the two halves of a head, which rope turns against each other, interleaved: row 2i + half of a head
  // is row i + half · E/2 of ours.
  void read_permuted(const TensorSpec& spec, const GgufTensor& tensor, std::span<float> out) const {
    const std::int64_t head = config_.head_dim, width = spec.shape.size() == 1 ? 1 : spec.shape[1];
    std::vector<float> interleaved(std::size_t(head * width));
    std::vector<float> whole;  // a bias is one row: read once
    if (spec.shape.size() == 1) {
      whole.resize(out.size());
      file_.read_rows(tensor, 0, whole);
    }
    for (std::int64_t h = 0; h < spec.shape[0] / head; ++h) {
      if (whole.empty())
        file_.read_rows(tensor, h * head, interleaved);
      else
        std::copy_n(whole.begin() + h * head, head, interleaved.begin());
      for (std::int64_t row = 0; row < head; ++row)
        std::copy_n(interleaved.begin() + row * width, width,
                    out.begin() + (h * head + row % 2 * (head / 2) + row / 2) * width);
    }
  }

  GgufFile file_;
  bool permuted_ = false;
};

}  // namespace

std::unique_ptr<WeightFiles> open_gguf(const std::filesystem::path& path) {
  return std::make_unique<GgufWeights>(path);
}

}  // namespace slideway
