#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/error.h"

namespace slideway {
namespace {

constexpr std::uint64_t kMaxAlignment = 1 << 20;
constexpr std::size_t kPieceBytes = 16 << 20;  // source pages held while a tensor is read

// Reads the header front to back; every length is compared with what is left before it is believed.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take_bytes(sizeof(T), "a number").data(), sizeof(T));
    return value;
  }

  std::string take_text(const char* what) {
    const auto length = take<std::uint64_t>();
    const auto text = take_bytes(length, what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  // count things of at least this many bytes each must still fit into the file.
  std::size_t take_count(std::uint64_t count, std::size_t least_bytes, const std::string& what) const {
    if (count > left() / least_bytes)
      refuse(count, " ", what, " are announced, but the ", left(), " bytes that are left cannot hold them");
    return std::size_t(count);
  }

  std::uint64_t left() const { return bytes_.size() - at_; }
  std::uint64_t at() const { return at_; }
  const std::string& name() const { return name_; }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::corrupt, name_, ": at offset ", at_, ": ", parts...);
  }

 private:
  std::span<const std::byte> take_bytes(std::uint64_t count, const char* what) {
    if (count > left())
      refuse(what, " of ", count, " bytes passes the end of the file (", bytes_.size(), " bytes)");
    const auto part = bytes_.subspan(at_, std::size_t(count));
    at_ += std::size_t(count);
    return part;
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::string name_;
};

// GGUF's value types, by number.
enum ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

constexpr std::size_t kValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  // of a string: its length

// Calls with(T{}) for the C++ type of a numeric value type.
template <class With>
auto with_number(Cursor& from, std::uint32_t type, const With& with) {
  switch (type) {
    case u8:
      return with(std::uint8_t{});
    case i8:
      return with(std::int8_t{});
    case u16:
      return with(std::uint16_t{});
    case i16:
      return with(std::int16_t{});
    case u32:
      return with(std::uint32_t{});
    case i32:
      return with(std::int32_t{});
    case u64:
      return with(std::uint64_t{});
    case i64:
      return with(std::int64_t{});
    case f32:
      return with(float{});
    case f64:
      return with(double{});
    default:
      from.refuse("unknown value type ", type);
  }
}

bool take_bool(Cursor& from) {
  const auto byte = from.take<std::uint8_t>();
  if (byte > 1) from.refuse("a boolean is ", int(byte));
  return byte == 1;
}

GgufValue take_array(Cursor& from, const std::string& key) {
  const auto type = from.take<std::uint32_t>();
  const auto announced = from.take<std::uint64_t>();
  if (type >= std::size(kValueBytes)) from.refuse("the array ", key, " has unknown value type ", type);
  if (type == array)
    fail(ErrorKind::unsupported, from.name(), ": the metadata key ", key, " is an array of arrays");
  const std::size_t count = from.take_count(announced, kValueBytes[type], "values of the array " + key);
  if (type == string) {
    std::vector<std::string> texts(count);
    for (auto& text : texts) text = from.take_text("a string");
    return texts;
  }
  if (type == boolean) {
    std::vector<std::int64_t> values(count);
    for (auto& value : values) value = take_bool(from);
    return values;
  }
  return with_number(from, type, [&]<class T>(T) -> GgufValue {
    std::vector<std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>> values(count);
    for (auto& value : values) {
      const T number = from.take<T>();
      if constexpr (std::is_same_v<T, std::uint64_t>)
        if (number > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
          from.refuse("the array ", key, " holds ", number, ", more than a signed 64-bit integer can");
      value = static_cast<std::remove_reference_t<decltype(value)>>(number);
    }
    return values;
  });
}

GgufValue take_value(Cursor& from, const std::string& key) {
  const auto type = from.take<std::uint32_t>();
  if (type == string) return from.take_text("a string");
  if (type == boolean) return take_bool(from);
  if (type == array) return take_array(from, key);
  return with_number(from, type, [&]<class T>(T) -> GgufValue {
    const T number = from.take<T>();
    if constexpr (std::is_floating_point_v<T>)
      return double(number);
    else if constexpr (std::is_signed_v<T>)
      return std::int64_t(number);
    else
      return std::uint64_t(number);
  });
}

// Offsets come back relative to the data section; the caller knows only later where that begins.
GgufTensor take_tensor(Cursor& from) {
  GgufTensor tensor;
  tensor.name = from.take_text("a tensor's name");
  const auto rank = from.take<std::uint32_t>();
  if (rank < 1 || rank > 4)
    from.refuse("the tensor ", tensor.name, " has ", rank, " axes; 1 to 4 are possible");
  tensor.shape.resize(rank);
  std::int64_t elements = 1;
  for (std::uint32_t axis = rank; axis-- > 0;) {  // GGUF names the contiguous axis first
    const auto size = from.take<std::uint64_t>();
    if (size < 1 || size > std::uint64_t(std::numeric_limits<std::int64_t>::max() / 8 / elements))
      from.refuse("the tensor ", tensor.name, " has an axis of ", size, " numbers");
    tensor.shape[axis] = std::int64_t(size);
    elements *= std::int64_t(size);
  }
  const auto type = from.take<std::uint32_t>();
  try {
    tensor.type = type > 1000 ? -1 : int(type);
    tensor.bytes =
        gguf_row_bytes(tensor.type, tensor.shape.back()) * std::uint64_t(elements / tensor.shape.back());
  } catch (const Error& error) {
    fail(error.kind(), from.name(), ": the tensor ", tensor.name, " (type number ", type,
         "): ", error.what());
  }
  tensor.offset = from.take<std::uint64_t>();
  return tensor;
}

std::uint64_t alignment_of(const Cursor& at, const GgufValue* value) {
  if (!value) return 32;
  const auto* given = std::get_if<std::uint64_t>(value);
  if (!given || !std::has_single_bit(*given) || *given > kMaxAlignment)
    at.refuse("general.alignment is not a power of two up to ", kMaxAlignment);
  return *given;
}

// Places the tensors into the file and checks that each lies inside, aligned, alone.
void place(const Cursor& at, std::vector<GgufTensor>& tensors, std::uint64_t alignment,
           std::uint64_t file_bytes) {
  const std::uint64_t data = (at.at() + alignment - 1) / alignment * alignment;
  std::vector<const GgufTensor*> by_offset;
  for (GgufTensor& tensor : tensors) {
    if (tensor.offset % alignment != 0)
      at.refuse("the tensor ", tensor.name, " begins at ", tensor.offset, ", not a multiple of ", alignment);
    if (data > file_bytes || tensor.offset > file_bytes - data ||
        tensor.bytes > file_bytes - data - tensor.offset)
      fail(ErrorKind::corrupt, at.name(), ": the tensor ", tensor.name, " (", tensor.bytes,
           " bytes from offset ", tensor.offset, " of the data section at ", data,
           ") passes the end of the file (", file_bytes, " bytes); the file is cut short");
    tensor.offset += data;
    by_offset.push_back(&tensor);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < by_offset.size(); ++i)
    if (by_offset[i - 1]->offset + by_offset[i - 1]->bytes > by_offset[i]->offset)
      fail(ErrorKind::corrupt, at.name(), ": the tensors ", by_offset[i - 1]->name, " and ",
           by_offset[i]->name, " overlap at offset ", by_offset[i]->offset);
}

}  // namespace

std::int64_t GgufTensor::elements() const {
  std::int64_t product = 1;
  for (auto size : shape) product *= size;
  return product;
}

GgufFile::GgufFile(const std::filesystem::path& path) : file_(path) {
  Cursor from(file_.bytes(), path.string());
  if (from.left() < 4 || std::memcmp(file_.bytes().data(), "GGUF", 4) != 0)
    from.refuse("this is not a GGUF file: it does not begin with GGUF");
  from.take<std::uint32_t>();
  const auto version = from.take<std::uint32_t>();
  if (version != 2 && version != 3)
    fail(ErrorKind::unsupported, path.string(), ": GGUF version ", version, "; 2 and 3 are read",
         (version & 0xffff) == 0 ? " (this looks like a big-endian file)" : "");
  const auto tensor_count = from.take<std::uint64_t>(), key_count = from.take<std::uint64_t>();
  from.take_count(tensor_count, 24 + 8, "tensors");
  from.take_count(key_count, 12 + 1, "metadata keys");
  for (std::uint64_t i = 0; i < key_count; ++i) {
    const std::string key = from.take_text("a metadata key");
    if (!metadata_.emplace(key, take_value(from, key)).second)
      from.refuse("the metadata key ", key, " comes twice");
  }
  for (std::uint64_t i = 0; i < tensor_count; ++i) {
    tensors_.push_back(take_tensor(from));
    if (!index_.emplace(tensors_.back().name, i).second)
      from.refuse("the tensor ", tensors_.back().name, " comes twice");
  }
  if (!tensors_.empty())
    place(from, tensors_, alignment_of(from, find("general.alignment")), file_.bytes().size());
  file_.drop(0, std::size_t(from.at()));
}

const GgufValue* GgufFile::find(const std::string& key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

const GgufValue& GgufFile::at(const std::string& key) const {
  if (const GgufValue* value = find(key)) return *value;
  fail(ErrorKind::corrupt, path().string(), ": the metadata key ", key, " is missing");
}

std::string GgufFile::text(const std::string& key) const {
  if (const auto* value = std::get_if<std::string>(&at(key))) return *value;
  fail(ErrorKind::corrupt, path().string(), ": the metadata key ", key, " is not a string");
}

std::int64_t GgufFile::integer(const std::string& key) const {
  const GgufValue& value = at(key);
  if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
  if (const auto* number = std::get_if<std::uint64_t>(&value))
    if (*number <= std::uint64_t(std::numeric_limits<std::int64_t>::max())) return std::int64_t(*number);
  fail(ErrorKind::corrupt, path().string(), ": the metadata key ", key, " is not an integer of 64 bits");
}

double GgufFile::number(const std::string& key) const {
  if (const auto* value = std::get_if<double>(&at(key))) return *value;
  return double(integer(key));
}

const GgufTensor* GgufFile::find_tensor(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void GgufFile::read_rows(const GgufTensor& tensor, std::int64_t first, std::span<float> out) const {
  const std::int64_t row = tensor.shape.back(), rows = std::int64_t(out.size()) / row;
  CHECK(rows * row == std::int64_t(out.size()) && first >= 0 && first + rows <= tensor.elements() / row,
        tensor.name);
  if (!gguf_type_is_read(tensor.type))
    fail(ErrorKind::unsupported, path().string(), ": the tensor ", tensor.name, " is stored as ",
         gguf_type_name(tensor.type),
         ", which is not read; convert the file to one of F32, F16, BF16, Q8_0, Q4_0, ",
         "Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K");
  const std::size_t row_bytes = gguf_row_bytes(tensor.type, row);
  const std::int64_t piece = std::max<std::int64_t>(1, std::int64_t(kPieceBytes / row_bytes));
  for (std::int64_t begin = 0; begin < rows; begin += piece) {
    const std::int64_t end = std::min(begin + piece, rows);
    const std::size_t offset = tensor.offset + std::size_t(first + begin) * row_bytes;
    const std::size_t bytes = std::size_t(end - begin) * row_bytes;
    dequantize(tensor.type, file_.bytes().subspan(offset, bytes),
               out.subspan(std::size_t(begin * row), std::size_t((end - begin) * row)));
    file_.drop(offset, bytes);
  }
}

}  // namespace slideway
