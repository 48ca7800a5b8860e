// {{name}}: a function in C. The network calls exports_wasi_http_incoming_handler_handle once per request.
//
// Everything that starts with wasi_ or function_ is generated from wit/function.wit; see bindings/function.h.

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "function.h"

// How much of a body is read; body_limit in fdn.toml refuses longer ones before they get here.
#define MOST_BODY (64 * 1024)
// The most that one blocking write may carry.
#define MOST_WRITE 4096

static uint8_t body[MOST_BODY];

// Reads the request's body into `body`. Returns its length, or -1 when it cannot be read.
static long read_body(wasi_http_types_borrow_incoming_request_t request) {
    wasi_http_types_own_incoming_body_t incoming;
    wasi_http_types_own_input_stream_t stream;
    if (!wasi_http_types_method_incoming_request_consume(request, &incoming)) {
        return -1;
    }
    if (!wasi_http_types_method_incoming_body_stream(wasi_http_types_borrow_incoming_body(incoming), &stream)) {
        wasi_http_types_incoming_body_drop_own(incoming);
        return -1;
    }
    size_t length = 0;
    bool failed = false;
    while (length < MOST_BODY) {
        function_list_u8_t chunk;
        wasi_io_streams_stream_error_t error;
        if (!wasi_io_streams_method_input_stream_blocking_read(wasi_io_streams_borrow_input_stream(stream),
                                                               MOST_BODY - length, &chunk, &error)) {
            failed = error.tag != WASI_IO_STREAMS_STREAM_ERROR_CLOSED;
            wasi_io_streams_stream_error_free(&error);
            break;
        }
        memcpy(body + length, chunk.ptr, chunk.len);
        length += chunk.len;
        function_list_u8_free(&chunk);
    }
    wasi_io_streams_input_stream_drop_own(stream);
    wasi_http_types_incoming_body_drop_own(incoming);
    return failed ? -1 : (long)length;
}

// Writes all of `bytes`; false when the other side has gone.
static bool write_all(wasi_io_streams_borrow_output_stream_t stream, const uint8_t *bytes, size_t length) {
    while (length > 0) {
        size_t part = length < MOST_WRITE ? length : MOST_WRITE;
        function_list_u8_t list = {(uint8_t *)bytes, part};
        wasi_io_streams_stream_error_t error;
        if (!wasi_io_streams_method_output_stream_blocking_write_and_flush(stream, &list, &error)) {
            wasi_io_streams_stream_error_free(&error);
            return false;
        }
        bytes += part;
        length -= part;
    }
    return true;
}

// One line for `fdn logs`.
static void log_line(const char *line) {
    wasi_cli_stdout_own_output_stream_t out = wasi_cli_stdout_get_stdout();
    write_all(wasi_io_streams_borrow_output_stream(out), (const uint8_t *)line, strlen(line));
    wasi_io_streams_output_stream_drop_own(out);
}

// Answers with `status` and the pieces of text that stand one after another in `parts`.
static void respond(wasi_http_types_own_response_outparam_t out, uint16_t status, const function_list_u8_t *parts,
                    size_t count) {
    static const char media_type[] = "text/plain; charset=utf-8";
    wasi_http_types_tuple2_field_name_field_value_t header = {{(uint8_t *)"content-type", 12},
                                               {(uint8_t *)media_type, sizeof media_type - 1}};
    wasi_http_types_list_tuple2_field_name_field_value_t headers = {&header, 1};
    wasi_http_types_own_fields_t fields;
    wasi_http_types_header_error_t invalid;
    wasi_http_types_result_own_outgoing_response_error_code_t result = {.is_err = true};
    if (!wasi_http_types_static_fields_from_list(&headers, &fields, &invalid)) {
        result.val.err.tag = WASI_HTTP_TYPES_ERROR_CODE_HTTP_PROTOCOL_ERROR;
        wasi_http_types_static_response_outparam_set(out, &result);
        return;
    }
    wasi_http_types_own_outgoing_response_t response = wasi_http_types_constructor_outgoing_response(fields);
    wasi_http_types_borrow_outgoing_response_t borrowed = wasi_http_types_borrow_outgoing_response(response);
    wasi_http_types_own_outgoing_body_t outgoing;
    bool has_body = wasi_http_types_method_outgoing_response_set_status_code(borrowed, status) &&
                    wasi_http_types_method_outgoing_response_body(borrowed, &outgoing);
    result.is_err = false;
    result.val.ok = response;
    wasi_http_types_static_response_outparam_set(out, &result);
    if (!has_body) {
        return;
    }
    wasi_http_types_own_output_stream_t stream;
    if (wasi_http_types_method_outgoing_body_write(wasi_http_types_borrow_outgoing_body(outgoing), &stream)) {
        for (size_t i = 0; i < count; i++) {
            if (!write_all(wasi_io_streams_borrow_output_stream(stream), parts[i].ptr, parts[i].len)) {
                break;
            }
        }
        wasi_io_streams_output_stream_drop_own(stream);
    }
    wasi_http_types_error_code_t error;
    if (!wasi_http_types_static_outgoing_body_finish(outgoing, NULL, &error)) {
        wasi_http_types_error_code_free(&error);
    }
}

#define TEXT(literal) {(uint8_t *)(literal), sizeof(literal) - 1}

void exports_wasi_http_incoming_handler_handle(exports_wasi_http_incoming_handler_own_incoming_request_t request,
                                               exports_wasi_http_incoming_handler_own_response_outparam_t out) {
    wasi_http_types_borrow_incoming_request_t borrowed = wasi_http_types_borrow_incoming_request(request);
    wasi_http_types_method_t method;
    wasi_http_types_method_incoming_request_method(borrowed, &method);
    bool has_body = method.tag != WASI_HTTP_TYPES_METHOD_GET && method.tag != WASI_HTTP_TYPES_METHOD_HEAD;
    wasi_http_types_method_free(&method);

    long length = has_body ? read_body(borrowed) : 0;
    wasi_http_types_incoming_request_drop_own(request);
    if (length < 0) {
        const function_list_u8_t parts[] = {TEXT("the body cannot be read\n")};
        respond(out, 400, parts, 1);
        return;
    }
    while (length > 0 && (body[length - 1] == '\n' || body[length - 1] == '\r')) {
        length--;
    }
    log_line("greeted\n");
    const function_list_u8_t world = TEXT("world");
    const function_list_u8_t name = {body, (size_t)length};
    const function_list_u8_t parts[] = {TEXT("hello, "), length == 0 ? world : name, TEXT("\n")};
    respond(out, 200, parts, 3);
}
