// SPDX-License-Identifier: Apache-2.0
#include "core/model/safetensors.h"

#include <algorithm>
#include <boost/json.hpp>
#include <functional>
#include <optional>
#include <set>

#include "core/base/check.h"
#include "core/base/durable_file.h"

namespace starling::model {
namespace {

namespace json = boost::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kHeaderBytesMax = std::uint64_t{16} << 20;
constexpr std::size_t kTensorsMax = 1 << 16;
constexpr std::size_t kDimensionsMax = 8;

// Of the metadata: the names of the buffers, and of those whose rule is not the mean; JSON arrays.
const std::string kBuffersKey = "starling.buffers";
const std::string kMaximumKey = "starling.maximum";
const std::string kLastKey = "starling.last";

Error bad_file(const std::string& why) {
  return rejected("bad-safetensors", "not a sound safetensors file: " + why);
}

struct Header {
  std::shared_ptr<const Layout> layout;  // in the order of the data
  Metadata metadata;
};

// The length of the JSON header, checked against the file's.
Result<std::uint64_t> header_length(ByteView first, std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes || first.size() < kLengthBytes) {
    return bad_file("it is shorter than 8 bytes");
  }
  const auto length = load_little<std::uint64_t>(first.data());
  if (length > kHeaderBytesMax) {
    return bad_file("its header claims " + std::to_string(length) + " bytes; at most " +
                    std::to_string(kHeaderBytesMax) + " are taken");
  }
  if (length > file_bytes - kLengthBytes) return bad_file("its header is cut off");
  return length;
}

std::optional<std::uint64_t> natural(const json::value& value) {
  if (value.is_int64() && value.get_int64() >= 0) {
    return static_cast<std::uint64_t>(value.get_int64());
  }
  return {};
}

struct Entry {
  TensorInfo tensor;
  std::uint64_t begin = 0, end = 0;
};

Result<Entry> parse_entry(const std::string& name, const json::value& value) {
  if (!value.is_object()) return bad_file("tensor \"" + name + "\" is not described by an object");
  const json::object& object = value.get_object();
  const json::value* dtype = object.if_contains("dtype");
  const json::value* shape = object.if_contains("shape");
  const json::value* offsets = object.if_contains("data_offsets");
  if (dtype == nullptr || !dtype->is_string() || shape == nullptr || !shape->is_array() ||
      offsets == nullptr || !offsets->is_array() || offsets->get_array().size() != 2) {
    return bad_file("tensor \"" + name + "\" lacks dtype, shape or data_offsets");
  }
  if (dtype->get_string() != "F32") {
    return unsupported("unsupported-dtype", "tensor \"" + name + "\" is of type " +
                                                std::string(dtype->get_string()) +
                                                "; only F32 is supported, convert it first");
  }
  Entry entry = {.tensor = {.name = name}};
  if (shape->get_array().size() > kDimensionsMax) {
    return bad_file("tensor \"" + name + "\" has too many dimensions");
  }
  for (const json::value& extent : shape->get_array()) {
    const auto size = natural(extent);
    if (!size || *size > Layout::kElementsMax) {
      return bad_file("tensor \"" + name + "\" has an impossible shape");
    }
    entry.tensor.shape.push_back(static_cast<std::int64_t>(*size));
  }
  const auto begin = natural(offsets->get_array()[0]);
  const auto end = natural(offsets->get_array()[1]);
  if (!begin || !end || *end < *begin) {
    return bad_file("tensor \"" + name + "\" has impossible offsets");
  }
  entry.begin = *begin;
  entry.end = *end;
  return entry;
}

Result<Metadata> parse_metadata(const json::value& value) {
  if (!value.is_object()) return bad_file("__metadata__ is not an object");
  Metadata metadata;
  for (const auto& [key, text] : value.get_object()) {
    if (!text.is_string()) return bad_file("__metadata__ holds something else than text");
    metadata.emplace(key, text.get_string());
  }
  return metadata;
}

// The names behind `key`, which is a list of `what`.
Result<std::set<std::string>> read_names(const Metadata& metadata, const std::string& key,
                                         const std::string& what) {
  std::set<std::string> listed;
  const auto text = metadata.find(key);
  if (text == metadata.end()) return listed;
  boost::system::error_code code;
  const json::value names = json::parse(text->second, code);
  if (code || !names.is_array()) return bad_file("its list of " + what + " is not a JSON array");
  for (const json::value& name : names.get_array()) {
    if (!name.is_string()) {
      return bad_file("its list of " + what + " holds something else than text");
    }
    listed.emplace(name.get_string().data(), name.get_string().size());
  }
  return listed;
}

// Gives the buffers that `metadata` lists behind `key` a rule that is not the mean.
Result<void> read_rule(const Metadata& metadata, const std::string& key, BufferRule rule,
                       std::vector<Entry>& entries) {
  const std::string what = rule == BufferRule::kMaximum ? "maximum buffers" : "last buffers";
  STARLING_ASSIGN(auto listed, read_names(metadata, key, what));
  for (auto& [tensor, begin, end] : entries) {
    if (tensor.role != Role::kBuffer || listed.erase(tensor.name) == 0) continue;
    if (tensor.rule != BufferRule::kMean) {
      return bad_file("it lists the buffer \"" + tensor.name + "\" under two rules");
    }
    tensor.rule = rule;
  }
  if (listed.empty()) return {};
  return bad_file("its list of " + what + " names \"" + *listed.begin() +
                  "\", which is no buffer of it");
}

// Gives the tensors that `metadata` names as buffers their role and their rule.
Result<void> read_roles(const Metadata& metadata, std::vector<Entry>& entries) {
  STARLING_ASSIGN(auto buffers, read_names(metadata, kBuffersKey, "buffers"));
  for (auto& [tensor, begin, end] : entries) {
    if (buffers.erase(tensor.name) > 0) tensor.role = Role::kBuffer;
  }
  if (!buffers.empty()) {
    return bad_file("its list of buffers names \"" + *buffers.begin() +
                    "\", which is no tensor of it");
  }
  STARLING_TRY(read_rule(metadata, kMaximumKey, BufferRule::kMaximum, entries));
  return read_rule(metadata, kLastKey, BufferRule::kLast, entries);
}

// The names of the tensors that are `such`, as the metadata list them; empty: none is.
template <class Such>
std::string list_names(const Layout& layout, const Such& such) {
  json::array names;
  for (const TensorInfo& tensor : layout.tensors()) {
    if (such(tensor)) names.emplace_back(tensor.name);
  }
  return names.empty() ? std::string() : json::serialize(names);
}

bool is_buffer(const TensorInfo& tensor) { return tensor.role == Role::kBuffer; }
bool is_maximum(const TensorInfo& tensor) {
  return is_buffer(tensor) && tensor.rule == BufferRule::kMaximum;
}
bool is_last(const TensorInfo& tensor) {
  return is_buffer(tensor) && tensor.rule == BufferRule::kLast;
}

// The tensors must lie one after the other and fill the data: no gaps, no overlaps.
Result<std::shared_ptr<const Layout>> arrange(std::vector<Entry> entries,
                                              std::uint64_t data_bytes) {
  std::ranges::stable_sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  std::vector<TensorInfo> tensors;
  for (Entry& entry : entries) tensors.push_back(std::move(entry.tensor));
  auto layout = Layout::make(std::move(tensors));
  if (!layout) return bad_file(layout.error().message());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const TensorInfo& tensor = (*layout)->tensors()[i];
    const std::uint64_t begin = tensor.offset * sizeof(float);
    if (entries[i].begin != begin || entries[i].end != begin + tensor.size() * sizeof(float)) {
      return bad_file("the offsets of tensor \"" + tensor.name +
                      "\" overlap, leave a gap or do not suit its shape");
    }
  }
  if ((*layout)->size() * sizeof(float) != data_bytes) {
    return bad_file("the tensors take " + std::to_string((*layout)->size() * sizeof(float)) +
                    " bytes, but " + std::to_string(data_bytes) + " follow the header");
  }
  return std::move(*layout);
}

Result<Header> parse_header(std::string_view header, std::uint64_t data_bytes) {
  boost::system::error_code code;
  json::parse_options options;
  options.max_depth = 4;
  const json::value root = json::parse(header, code, {}, options);
  if (code) return bad_file("its header is not JSON (" + code.message() + ")");
  if (!root.is_object()) return bad_file("its header is not a JSON object");
  if (root.get_object().size() > kTensorsMax) return bad_file("it has too many tensors");
  Header result;
  std::vector<Entry> entries;
  for (const auto& [key, value] : root.get_object()) {
    if (key == "__metadata__") {
      STARLING_ASSIGN(result.metadata, parse_metadata(value));
    } else {
      STARLING_ASSIGN(Entry entry, parse_entry(key, value));
      entries.push_back(std::move(entry));
    }
  }
  STARLING_TRY(read_roles(result.metadata, entries));
  result.metadata.erase(kBuffersKey);
  result.metadata.erase(kMaximumKey);
  STARLING_ASSIGN(result.layout, arrange(std::move(entries), data_bytes));
  return result;
}

std::string text(const std::vector<std::int64_t>& shape) {
  std::string result = "[";
  for (const std::int64_t extent : shape) {
    result += (result.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return result + "]";
}

Result<void> check_expected(const Layout& file, const Layout& expected) {
  for (const TensorInfo& tensor : expected.tensors()) {
    const TensorInfo* found = file.find(tensor.name);
    if (found == nullptr) {
      return rejected("layout-mismatch", "the file has no tensor \"" + tensor.name + "\"");
    }
    if (found->shape != tensor.shape) {
      return rejected("layout-mismatch", "tensor \"" + tensor.name + "\" has the shape " +
                                             text(found->shape) + "; " + text(tensor.shape) +
                                             " is expected");
    }
  }
  for (const TensorInfo& tensor : file.tensors()) {
    if (expected.find(tensor.name) != nullptr) continue;
    return rejected("layout-mismatch",
                    "the file holds the tensor \"" + tensor.name + "\", which the model lacks");
  }
  return {};
}

// Copies `to.size()` values that begin at float `offset` of the data.
using ReadValues = std::function<Result<void>(std::size_t offset, std::span<float> to)>;

Result<SafetensorsFile> load_values(Header header, const SafetensorsOptions& options,
                                    const ReadValues& read) {
  const std::shared_ptr<const Layout> in_file = header.layout;
  if (options.expected) STARLING_TRY(check_expected(*in_file, *options.expected));
  SafetensorsFile result = {.parameters = Parameters(options.expected ? options.expected : in_file),
                            .metadata = std::move(header.metadata)};
  for (const TensorInfo& tensor : result.parameters.layout()->tensors()) {
    STARLING_TRY(read(in_file->find(tensor.name)->offset, result.parameters.values(tensor)));
  }
  return result;
}

Error too_large(std::uint64_t bytes, std::uint64_t bytes_max) {
  return rejected("file-too-large", "a model file of " + std::to_string(bytes) +
                                        " bytes; at most " + std::to_string(bytes_max) +
                                        " are allowed here");
}

// What stands before the values: the length and the JSON.
Result<Bytes> read_beginning(DiskFile& file) {
  Bytes beginning(std::min<std::uint64_t>(kLengthBytes, file.size()));
  STARLING_TRY(file.read(0, beginning));
  STARLING_ASSIGN(const std::uint64_t length, header_length(beginning, file.size()));
  beginning.resize(kLengthBytes + length);
  STARLING_TRY(file.read(kLengthBytes, MutableByteView(beginning).subspan(kLengthBytes)));
  return beginning;
}

Result<Header> parse_beginning(ByteView beginning, std::uint64_t file_bytes) {
  return parse_header(as_text(beginning.subspan(kLengthBytes)), file_bytes - beginning.size());
}

Result<SafetensorsFile> load_file(DiskFile& file, const SafetensorsOptions& options) {
  if (file.size() > options.file_bytes_max) return too_large(file.size(), options.file_bytes_max);
  STARLING_ASSIGN(const Bytes beginning, read_beginning(file));
  const std::uint64_t data_begin = beginning.size();
  STARLING_ASSIGN(Header parsed, parse_beginning(beginning, file.size()));
  STARLING_CHECK(!options.hash_file || !options.expected);
  Sha256 digest;
  digest.update(beginning);
  const auto read = [&](std::size_t offset, std::span<float> to) -> Result<void> {
    STARLING_TRY(file.read(data_begin + offset * sizeof(float), std::as_writable_bytes(to)));
    if (options.hash_file) digest.update(as_bytes(std::span<const float>(to)));
    return {};
  };
  // In the order of the data, which they fill: all bytes of the file.
  STARLING_ASSIGN(SafetensorsFile loaded, load_values(std::move(parsed), options, read));
  if (options.hash_file) loaded.sha256 = std::move(digest).finish();
  return loaded;
}

}  // namespace

Result<SafetensorsFile> load_safetensors(Disk& disk, const std::filesystem::path& path,
                                         const SafetensorsOptions& options) {
  STARLING_ASSIGN(const auto file, disk.open(path));
  auto result = load_file(*file, options);
  if (!result) return result.error().within(path.string());
  return result;
}

Result<SafetensorsFile> load_safetensors(const std::filesystem::path& path,
                                         const SafetensorsOptions& options) {
  SystemDisk disk;
  return load_safetensors(disk, path, options);
}

Result<SafetensorsFile> parse_safetensors(ByteView file, const SafetensorsOptions& options) {
  if (file.size() > options.file_bytes_max) return too_large(file.size(), options.file_bytes_max);
  STARLING_ASSIGN(const std::uint64_t length, header_length(file, file.size()));
  const ByteView data = file.subspan(kLengthBytes + length);
  STARLING_ASSIGN(Header parsed,
                  parse_header(as_text(file.subspan(kLengthBytes, length)), data.size()));
  return load_values(std::move(parsed), options, [&](std::size_t offset, std::span<float> to) {
    if (!to.empty()) {
      std::memcpy(to.data(), data.data() + offset * sizeof(float), to.size_bytes());
    }
    return Result<void>();
  });
}

Result<Parameters> read_safetensors(const std::filesystem::path& path,
                                    const SafetensorsOptions& options) {
  STARLING_ASSIGN(SafetensorsFile file, load_safetensors(path, options));
  return std::move(file.parameters);
}

Result<Metadata> load_safetensors_metadata(Disk& disk, const std::filesystem::path& path) {
  STARLING_ASSIGN(const auto file, disk.open(path));
  const auto beginning = read_beginning(*file);
  if (!beginning) return beginning.error().within(path.string());
  auto header = parse_beginning(*beginning, file->size());
  if (!header) return header.error().within(path.string());
  return std::move(header->metadata);
}

Bytes safetensors_header(const Layout& layout, const Metadata& metadata) {
  Metadata all = metadata;
  if (std::string maxima = list_names(layout, is_maximum); !maxima.empty()) {
    all[kMaximumKey] = std::move(maxima);
  }
  if (std::string last = list_names(layout, is_last); !last.empty()) {
    all[kLastKey] = std::move(last);
  }
  if (std::string buffers = list_names(layout, is_buffer); !buffers.empty()) {
    all[kBuffersKey] = std::move(buffers);
  }
  json::object root;
  if (!all.empty()) {
    json::object& object = root["__metadata__"].emplace_object();
    for (const auto& [key, text] : all) object[key] = text;
  }
  for (const TensorInfo& tensor : layout.tensors()) {
    json::object& entry = root[tensor.name].emplace_object();
    entry["dtype"] = "F32";
    entry["shape"] = json::array(tensor.shape.begin(), tensor.shape.end());
    const std::uint64_t begin = tensor.offset * sizeof(float);
    entry["data_offsets"] = {begin, begin + tensor.size() * sizeof(float)};
  }
  std::string header = json::serialize(root);
  header.append((8 - header.size() % 8) % 8, ' ');
  Bytes bytes(kLengthBytes + header.size());
  store_little<std::uint64_t>(bytes.data(), header.size());
  std::memcpy(bytes.data() + kLengthBytes, header.data(), header.size());
  return bytes;
}

Result<void> write_safetensors(const std::filesystem::path& path, const Parameters& parameters,
                               const Metadata& metadata) {
  const Bytes header = safetensors_header(*parameters.layout(), metadata);
  const ByteView parts[] = {header, as_bytes(parameters.values())};
  return write_durably(path, parts);
}

}  // namespace starling::model
