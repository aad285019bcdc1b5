/* SPDX-License-Identifier: Apache-2.0 */
/* Error codes, error records, and the text of messages. */
#include "base/error.h"
#include "base/text.h"
#include "test.h"

#include <errno.h>

typedef struct code_row {
    co_code     code;
    const char *name;
    const char *kind;
    co_code     canonical;
} code_row;

static const code_row rows[] = {
    { CO_OK, "CO_OK", "", CO_OK },
    { CO_CANCELLED, "CO_CANCELLED", "", CO_CANCELLED },
    { CO_UNKNOWN, "CO_UNKNOWN", "", CO_UNKNOWN },
    { CO_INVALID_ARGUMENT, "CO_INVALID_ARGUMENT", "E_INVALID", CO_INVALID_ARGUMENT },
    { CO_DEADLINE_EXCEEDED, "CO_DEADLINE_EXCEEDED", "E_DEADLINE", CO_DEADLINE_EXCEEDED },
    { CO_NOT_FOUND, "CO_NOT_FOUND", "E_NOTFOUND", CO_NOT_FOUND },
    { CO_ALREADY_EXISTS, "CO_ALREADY_EXISTS", "", CO_ALREADY_EXISTS },
    { CO_PERMISSION_DENIED, "CO_PERMISSION_DENIED", "", CO_PERMISSION_DENIED },
    { CO_RESOURCE_EXHAUSTED, "CO_RESOURCE_EXHAUSTED", "", CO_RESOURCE_EXHAUSTED },
    { CO_FAILED_PRECONDITION, "CO_FAILED_PRECONDITION", "E_PRECOND", CO_FAILED_PRECONDITION },
    { CO_ABORTED, "CO_ABORTED", "", CO_ABORTED },
    { CO_OUT_OF_RANGE, "CO_OUT_OF_RANGE", "E_OOR", CO_OUT_OF_RANGE },
    { CO_INTERNAL, "CO_INTERNAL", "", CO_INTERNAL },
    { CO_UNAVAILABLE, "CO_UNAVAILABLE", "E_UNAVAIL", CO_UNAVAILABLE },
    { CO_DATA_LOSS, "CO_DATA_LOSS", "E_DATALOSS", CO_DATA_LOSS },
    { CO_UNAUTHENTICATED, "CO_UNAUTHENTICATED", "", CO_UNAUTHENTICATED },
    { CO_RUNTIME_ERROR, "CO_RUNTIME_ERROR", "E_RUNTIME", CO_FAILED_PRECONDITION },
    { CO_VALUE_ERROR, "CO_VALUE_ERROR", "E_VALUE", CO_INVALID_ARGUMENT },
    { CO_TYPE_ERROR, "CO_TYPE_ERROR", "E_TYPE", CO_INVALID_ARGUMENT },
    { CO_UNIMPLEMENTED, "CO_UNIMPLEMENTED", "E_NOTIMPL", CO_UNIMPLEMENTED },
    { CO_ASSERTION_ERROR, "CO_ASSERTION_ERROR", "E_ASSERT", CO_FAILED_PRECONDITION },
    { CO_STOP_ITERATION, "CO_STOP_ITERATION", "E_STOP", CO_OUT_OF_RANGE },
};

CO_TEST_BARE(every_code_has_its_name_kind_and_canonical_code, "")
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        CO_EXPECT_STR(co_code_name(rows[i].code), rows[i].name);
        CO_EXPECT_STR(co_code_kind(rows[i].code), rows[i].kind);
        CO_EXPECT_CODE(co_code_canonical(rows[i].code), rows[i].canonical);
    }
}

CO_TEST_BARE(numbers_that_are_no_code_are_unknown, "")
{
    static const int none[] = { -1, 17, 31, 38, 1000, INT32_MAX, INT32_MIN };

    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); ++i) {
        CO_EXPECT_STR(co_code_name((co_code)none[i]), "CO_UNKNOWN");
        CO_EXPECT_STR(co_code_kind((co_code)none[i]), "");
        CO_EXPECT_CODE(co_code_canonical((co_code)none[i]), CO_UNKNOWN);
    }
}

CO_TEST_BARE(the_first_error_of_a_record_stays, "")
{
    co_error_info err;

    coi_error_reset(&err);
    CO_EXPECT_CODE(err.code, CO_OK);
    CO_EXPECT_INT(err.rank, -1);
    CO_EXPECT_INT(err.replica, -1);
    CO_EXPECT_STR(err.message, "");
    errno = 33;
    CO_EXPECT_CODE(coi_error(&err, CO_VALUE_ERROR, "first %d", 1), CO_VALUE_ERROR);
    CO_EXPECT_CODE(coi_error(&err, CO_TYPE_ERROR, "second"), CO_TYPE_ERROR);
    CO_EXPECT_INT(errno, 33);
    CO_EXPECT_CODE(err.code, CO_VALUE_ERROR);
    CO_EXPECT_STR(err.message, "first 1");
    CO_EXPECT_CODE(coi_error(NULL, CO_TYPE_ERROR, "nobody listens"), CO_TYPE_ERROR);
}

CO_TEST_BARE(a_failure_without_a_code_is_internal, "")
{
    co_error_info err;

    coi_error_reset(&err);
    CO_EXPECT_CODE(coi_error(&err, CO_OK, "odd"), CO_INTERNAL);
    CO_EXPECT_CODE(err.code, CO_INTERNAL);
}

CO_TEST_BARE(a_long_message_is_cut_with_dots, "")
{
    co_error_info err;
    char          text[3000];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    coi_error_reset(&err);
    coi_error(&err, CO_VALUE_ERROR, "%s", text);
    CO_EXPECT_INT(strlen(err.message), sizeof(err.message) - 1);
    CO_EXPECT_STR(err.message + sizeof(err.message) - 4, "...");
}

/* What is quoted from strangers cannot break a line, a terminal or a decoder. */
CO_TEST_BARE(a_message_is_one_line_of_valid_utf8, "")
{
    static const struct {
        const char *given;
        const char *shown;
    } cases[] = {
        { "plain", "plain" },
        { "two\nlines\tand\ttabs", "two lines and tabs" },
        { "bell\a escape\033[31m delete\177", "bell? escape?[31m delete?" },
        { "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f" },
        { "\xe2\x82\xac \xf0\x9f\x98\x80", "\xe2\x82\xac \xf0\x9f\x98\x80" },
        { "lone \x80 \xbf", "lone ? ?" },
        { "overlong \xc0\xaf \xe0\x80\xaf", "overlong ?? ???" },
        { "surrogate \xed\xa0\x80", "surrogate ???" },
        { "too large \xf4\x90\x80\x80 \xf5\x80", "too large ???? ??" },
        { "cut \xe2\x82", "cut ??" },
    };
    char line[64];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        CO_EXPECT_INT(coi_text_line(line, sizeof(line), "%s", cases[i].given),
                      strlen(cases[i].shown));
        CO_EXPECT_STR(line, cases[i].shown);
    }
}

/* A cut through a character drops it: every capacity gives valid text of the length returned. */
CO_TEST_BARE(a_cut_keeps_characters_whole, "")
{
    const char *text = "a\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80z";

    for (size_t capacity = 4; capacity < 20; ++capacity) {
        char   line[32];
        size_t length = coi_text_line(line, capacity, "%s", text);

        CO_EXPECT_INT(strlen(line), length);
        CO_EXPECT_LESS(length, capacity);
        CO_EXPECT_NULL(strchr(line, '?'));
        if (capacity <= strlen(text))
            CO_EXPECT_STR(line + length - 3, "...");
        else
            CO_EXPECT_STR(line, text);
    }
}

CO_TEST_BARE(text_that_grows_says_where_it_was_cut, "")
{
    char      text[12];
    coi_prose list = { text, sizeof(text), 0 };

    coi_put(&list, "%s", "eleven char");
    coi_put_end(&list);
    CO_EXPECT_STR(text, "eleven char");
    CO_EXPECT_INT(list.at, 11);
    coi_put(&list, "%s", "s");
    coi_put(&list, "%s", " and more");
    coi_put_end(&list);
    CO_EXPECT_STR(text, "eleven c...");
    CO_EXPECT_INT(list.at, 11);
}

/* The end of a path says more than its beginning. */
CO_TEST_BARE(long_paths_keep_their_end, "")
{
    CO_EXPECT_STR(coi_path_end("src/a.c", 7), "src/a.c");
    CO_EXPECT_STR(coi_path_end("/some/where/src/a.c", 9), "src/a.c");
    CO_EXPECT_STR(coi_path_end("/some/where/src/a.c", 7), "a.c");
    CO_EXPECT_STR(coi_path_end("a_name_without_folders.c", 10), "_folders.c");
    CO_EXPECT_STR(coi_path_end("/a/folder/", 4), "der/");
}

CO_TEST_BARE(numbers_are_digits_up_to_their_limit, "")
{
    static const struct {
        const char *text;
        uint64_t    max;
        bool        good;
        uint64_t    number;
    } cases[] = {
        { "0", 0, true, 0 },
        { "1", 0, false, 0 },
        { "007", 9, true, 7 },
        { "2147483647", 2147483647, true, 2147483647 },
        { "2147483648", 2147483647, false, 0 },
        { "18446744073709551615", UINT64_MAX, true, UINT64_MAX },
        { "18446744073709551616", UINT64_MAX, false, 0 },
        { "99999999999999999999999999", UINT64_MAX, false, 0 },
        { "", 9, false, 0 },
        { "-1", 9, false, 0 },
        { "+1", 9, false, 0 },
        { " 1", 9, false, 0 },
        { "1 ", 9, false, 0 },
        { "0x1", 99, false, 0 },
        { "1e1", 99, false, 0 },
        { "\xd9\xa1", 99, false, 0 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        uint64_t number = 12345;

        CO_EXPECT_INT(coi_text_number(cases[i].text, strlen(cases[i].text), cases[i].max, &number),
                      cases[i].good);
        CO_EXPECT_TRUE(number == (cases[i].good ? cases[i].number : 12345));
    }
}
