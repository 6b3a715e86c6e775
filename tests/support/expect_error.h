// expect_error: body must throw an Error of this kind whose message holds all of these texts.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "core/error.h"

namespace slideway {

template <class Body>
void expect_error(ErrorKind kind, std::initializer_list<std::string> texts, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(int(error.kind()), int(kind)) << error.what();
    for (const std::string& text : texts) EXPECT_THAT(error.what(), testing::HasSubstr(text));
    return;
  }
  ADD_FAILURE() << "nothing was thrown";
}

}  // namespace slideway
