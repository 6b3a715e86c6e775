#include "core/file.h"

#include <cerrno>
#include <fstream>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

std::string text_at(const File& file, std::uint64_t offset, std::size_t bytes) {
  std::string text(bytes, '?');
  file.read_at(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(File, ReadsBackByPositionWhatWasWritten) {
  const TemporaryFolder folder;
  File out = File::create(folder / "a");
  out.write("hello ");
  out.write("world");
  out.sync();
  EXPECT_EQ(out.bytes(), 11u);
  out.close();
  const File in = File::open_read(folder / "a");
  EXPECT_EQ(text_at(in, 6, 5), "world");
  EXPECT_EQ(text_at(in, 0, 0), "");
}

TEST(File, CreateTruncatesAndAppendContinues) {
  const TemporaryFolder folder;
  File::create(folder / "a").write("long text");
  File::create(folder / "a").write("ab");
  File::open_append(folder / "a").write("cd");
  File::open_append(folder / "b").write("new");
  EXPECT_EQ(read_text(folder / "a"), "abcd");
  EXPECT_EQ(read_text(folder / "b"), "new");
}

TEST(File, NamesThePathAndTheReasonWhenThereIsNoFile) {
  const TemporaryFolder folder;
  expect_error(ErrorKind::not_found, {"no/such", "No such file"},
               [&] { File::open_read(folder / "no/such"); });
  expect_error(ErrorKind::not_found, {"no/such", "No such file"}, [&] { File::create(folder / "no/such"); });
  expect_error(ErrorKind::io, {folder.path().string(), "Is a directory"},
               [&] { File::open_read(folder.path()); });
  expect_error(ErrorKind::not_found, {"gone"}, [&] { MappedFile(folder / "gone"); });
}

TEST(File, SaysWhereAFileEndsThatIsReadBeyondItsEnd) {
  const TemporaryFolder folder;
  File::create(folder / "a").write("12345");
  const File in = File::open_read(folder / "a");
  expect_error(ErrorKind::io, {"/a", "4 bytes wanted at offset 3", "ends at 5"}, [&] { text_at(in, 3, 4); });
}

TEST(File, SaysHowMuchAFullDiskLacks) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  File full = File::open_append("/dev/full");
  expect_error(ErrorKind::io, {"/dev/full", "No space left", "5 bytes wanted", " free"},
               [&] { full.write("12345"); });
}

TEST(File, AnInjectedFaultHitsExactlyTheNthWrite) {
  const TemporaryFolder folder;
  File out = File::create(folder / "a");
  inject_write_fault(3, EIO);
  out.write("1");
  out.write("2");
  expect_error(ErrorKind::io, {"/a", "Input/output error"}, [&] { out.write("3"); });
  out.write("4");
  inject_write_fault(1, ENOSPC);
  inject_write_fault(0, 0);
  out.write("5");
  EXPECT_EQ(read_text(folder / "a"), "1245");
}

TEST(File, AMovedFileIsClosedOnce) {
  const TemporaryFolder folder;
  File a = File::create(folder / "a");
  File b = std::move(a);
  b = File::create(folder / "b");
  b.write("b");
  EXPECT_EQ(read_text(folder / "b"), "b");
  EXPECT_EQ(b.path(), folder / "b");
}

TEST(File, ReadsTextWhoseSizeTheSystemDoesNotTell) {
  EXPECT_THAT(read_text("/proc/self/status"), testing::HasSubstr("Threads:"));
  const TemporaryFolder folder;
  File::create(folder / "empty");
  EXPECT_EQ(read_text(folder / "empty"), "");
}

TEST(MappedFile, ShowsTheFileAndSurvivesDropping) {
  const TemporaryFolder folder;
  std::string text(3 * 4096 + 100, 'x');
  text[5000] = 'y';
  File::create(folder / "a").write(text);
  const MappedFile made(folder / "a");
  ASSERT_EQ(made.bytes().size(), text.size());
  made.drop(0, 10);
  made.drop(10, 9000);
  made.drop(9010, text.size() - 9010);
  EXPECT_EQ(char(made.bytes()[5000]), 'y');
  EXPECT_EQ(char(made.bytes()[text.size() - 1]), 'x');
  expect_error(ErrorKind::internal, {"/a"}, [&] { made.drop(1, text.size()); });
}

TEST(MappedFile, AnEmptyFileIsAnEmptyRange) {
  const TemporaryFolder folder;
  File::create(folder / "empty");
  MappedFile empty(folder / "empty");
  EXPECT_TRUE(empty.bytes().empty());
  const MappedFile moved = std::move(empty);
  EXPECT_TRUE(moved.bytes().empty());
}

}  // namespace
}  // namespace slideway
