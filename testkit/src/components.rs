//! WebAssembly components for tests, made in memory from a few lines of text each, without any foreign toolchain.
//!
//! Every function here returns the octets of a component (or of something that is not one, where the name says so). The
//! core modules are written against the canonical ABI by hand; `PRELUDE` holds the steps that most of them share. A page of
//! memory is used as: 0..64 results of host calls, 64..128 a second such area, 256..1024 scratch, 1024.. texts, 8192.. what
//! the host allocates (reset at each call).

use std::fmt::Write as _;

use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

/// The patch version of WASI that the components are built for unless told otherwise.
pub const WASI_VERSION: &str = "0.2.3";

const WIT: &str = include_str!("../wit/wasi.wit");

const IMPORTS: &[(&str, &str, &str, &str)] = &[
    // (module, name, name in the text, signature)
    (
        "wasi:http/types",
        "[constructor]fields",
        "fields-new",
        "(result i32)",
    ),
    (
        "wasi:http/types",
        "[method]fields.append",
        "fields-append",
        "(param i32 i32 i32 i32 i32 i32)",
    ),
    (
        "wasi:http/types",
        "[method]incoming-request.path-with-query",
        "request-path",
        "(param i32 i32)",
    ),
    (
        "wasi:http/types",
        "[method]incoming-request.consume",
        "request-consume",
        "(param i32 i32)",
    ),
    (
        "wasi:http/types",
        "[method]incoming-body.stream",
        "incoming-stream",
        "(param i32 i32)",
    ),
    (
        "wasi:http/types",
        "[constructor]outgoing-response",
        "response-new",
        "(param i32) (result i32)",
    ),
    (
        "wasi:http/types",
        "[method]outgoing-response.set-status-code",
        "response-status",
        "(param i32 i32) (result i32)",
    ),
    (
        "wasi:http/types",
        "[method]outgoing-response.body",
        "response-body",
        "(param i32 i32)",
    ),
    (
        "wasi:http/types",
        "[method]outgoing-body.write",
        "body-write",
        "(param i32 i32)",
    ),
    (
        "wasi:http/types",
        "[static]outgoing-body.finish",
        "body-finish",
        "(param i32 i32 i32 i32)",
    ),
    (
        "wasi:http/types",
        "[static]response-outparam.set",
        "respond",
        "(param i32 i32 i32 i32 i64 i32 i32 i32 i32)",
    ),
    (
        "wasi:http/types",
        "[constructor]outgoing-request",
        "out-new",
        "(param i32) (result i32)",
    ),
    (
        "wasi:http/types",
        "[method]outgoing-request.set-scheme",
        "out-scheme",
        "(param i32 i32 i32 i32 i32) (result i32)",
    ),
    (
        "wasi:http/types",
        "[method]outgoing-request.set-authority",
        "out-authority",
        "(param i32 i32 i32 i32) (result i32)",
    ),
    (
        "wasi:http/types",
        "[method]outgoing-request.set-path-with-query",
        "out-path",
        "(param i32 i32 i32 i32) (result i32)",
    ),
    (
        "wasi:http/types",
        "[method]future-incoming-response.subscribe",
        "future-subscribe",
        "(param i32) (result i32)",
    ),
    (
        "wasi:http/types",
        "[method]future-incoming-response.get",
        "future-get",
        "(param i32 i32)",
    ),
    (
        "wasi:http/types",
        "[method]incoming-response.consume",
        "in-consume",
        "(param i32 i32)",
    ),
    (
        "wasi:http/outgoing-handler",
        "handle",
        "send",
        "(param i32 i32 i32 i32)",
    ),
    (
        "wasi:http/types",
        "[resource-drop]incoming-request",
        "drop-request",
        "(param i32)",
    ),
    (
        "wasi:http/types",
        "[resource-drop]incoming-body",
        "drop-incoming-body",
        "(param i32)",
    ),
    (
        "wasi:io/streams",
        "[method]input-stream.blocking-read",
        "read",
        "(param i32 i64 i32)",
    ),
    (
        "wasi:io/streams",
        "[method]output-stream.blocking-write-and-flush",
        "write",
        "(param i32 i32 i32 i32)",
    ),
    (
        "wasi:io/streams",
        "[resource-drop]input-stream",
        "drop-input",
        "(param i32)",
    ),
    (
        "wasi:io/streams",
        "[resource-drop]output-stream",
        "drop-output",
        "(param i32)",
    ),
    (
        "wasi:io/poll",
        "[method]pollable.block",
        "block",
        "(param i32)",
    ),
    (
        "wasi:io/poll",
        "[resource-drop]pollable",
        "drop-pollable",
        "(param i32)",
    ),
    (
        "wasi:clocks/monotonic-clock",
        "subscribe-duration",
        "after",
        "(param i64) (result i32)",
    ),
    (
        "wasi:cli/environment",
        "get-environment",
        "environment",
        "(param i32)",
    ),
    ("wasi:cli/exit", "exit", "exit", "(param i32)"),
    ("wasi:cli/stdout", "get-stdout", "stdout", "(result i32)"),
    ("wasi:cli/stderr", "get-stderr", "stderr", "(result i32)"),
    ("fdn:foreign/things", "touch", "touch", ""),
    ("acme:store/kv", "poke", "poke", ""),
];

/// Functions of the text; one is taken into a module when the module or a taken one calls it.
const PRELUDE: &[(&str, &str)] = &[
    // Sets the head with this status and leaves body and stream in the globals.
    (
        "open",
        r"(func $open (param $out i32) (param $status i32)
        (local $response i32)
        (local.set $response (call $response-new (call $fields-new)))
        (drop (call $response-status (local.get $response) (local.get $status)))
        (call $response-body (local.get $response) (i32.const 0))
        (global.set $body (i32.load (i32.const 4)))
        (call $respond (local.get $out) (i32.const 0) (local.get $response)
            (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
        (call $body-write (global.get $body) (i32.const 0))
        (global.set $stream (i32.load (i32.const 4))))",
    ),
    // Writes to the open body in pieces that the stream accepts; 1 when the other side is gone.
    (
        "put",
        r"(func $put (param $at i32) (param $len i32) (result i32)
        (local $piece i32)
        (loop $more
            (if (i32.eqz (local.get $len)) (then (return (i32.const 0))))
            (local.set $piece (select (i32.const 4096) (local.get $len) (i32.gt_u (local.get $len) (i32.const 4096))))
            (call $write (global.get $stream) (local.get $at) (local.get $piece) (i32.const 0))
            (if (i32.load8_u (i32.const 0)) (then (return (i32.const 1))))
            (local.set $at (i32.add (local.get $at) (local.get $piece)))
            (local.set $len (i32.sub (local.get $len) (local.get $piece)))
            (br $more))
        (unreachable))",
    ),
    (
        "close",
        r"(func $close
        (call $drop-output (global.get $stream))
        (call $body-finish (global.get $body) (i32.const 0) (i32.const 0) (i32.const 0)))",
    ),
    // A whole answer.
    (
        "answer",
        r"(func $answer (param $out i32) (param $status i32) (param $at i32) (param $len i32)
        (call $open (local.get $out) (local.get $status))
        (drop (call $put (local.get $at) (local.get $len)))
        (call $close))",
    ),
    // The decimal digits of a number at 256..; returns where they begin, they end at 272.
    (
        "digits",
        r"(func $digits (param $n i32) (result i32)
        (local $at i32)
        (local.set $at (i32.const 272))
        (loop $more
            (local.set $at (i32.sub (local.get $at) (i32.const 1)))
            (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10))))
            (local.set $n (i32.div_u (local.get $n) (i32.const 10)))
            (br_if $more (local.get $n)))
        (local.get $at))",
    ),
    (
        "sleep",
        r"(func $sleep (param $ns i64)
        (local $timer i32)
        (local.set $timer (call $after (local.get $ns)))
        (call $block (local.get $timer))
        (call $drop-pollable (local.get $timer)))",
    ),
    // Copies an incoming body to the open outgoing body; returns how many octets.
    (
        "pump",
        r"(func $pump (param $from i32) (result i32)
        (local $in i32) (local $total i32)
        (call $incoming-stream (local.get $from) (i32.const 64))
        (local.set $in (i32.load (i32.const 68)))
        (block $end
            (loop $more
                (global.set $heap (i32.const 8192))
                (call $read (local.get $in) (i64.const 16384) (i32.const 64))
                (br_if $end (i32.load8_u (i32.const 64)))
                (local.set $total (i32.add (local.get $total) (i32.load (i32.const 72))))
                (br_if $end (call $put (i32.load (i32.const 68)) (i32.load (i32.const 72))))
                (br $more)))
        (call $drop-input (local.get $in))
        (call $drop-incoming-body (local.get $from))
        (local.get $total))",
    ),
];

struct Module<'a> {
    version: &'a str,
    /// Instructions of the handler; `$request` and `$out` are its parameters.
    handle: &'a str,
    /// Text at 1024.
    text: &'a [u8],
    /// Memory in pages.
    pages: u32,
}

impl Default for Module<'_> {
    fn default() -> Self {
        Self {
            version: WASI_VERSION,
            handle: "",
            text: b"",
            pages: 1,
        }
    }
}

fn calls(text: &str, name: &str) -> bool {
    text.match_indices(&format!("call ${name}"))
        .any(|(at, found)| text[at + found.len()..].starts_with([' ', ')', '\n']))
}

impl Module<'_> {
    fn wat(&self) -> String {
        let mut functions = String::new();
        let mut taken = vec![false; PRELUDE.len()];
        while let Some(next) = (0..PRELUDE.len()).find(|&i| {
            !taken[i] && (calls(self.handle, PRELUDE[i].0) || calls(&functions, PRELUDE[i].0))
        }) {
            taken[next] = true;
            functions.push_str(PRELUDE[next].1);
            functions.push('\n');
        }
        let mut wat = String::from("(module\n");
        for (module, name, short, signature) in IMPORTS {
            if calls(self.handle, short) || calls(&functions, short) {
                let version = match *module {
                    "fdn:foreign/things" => "1.0.0",
                    "acme:store/kv" => "0.2.0",
                    _ => self.version,
                };
                let _ = writeln!(
                    wat,
                    "(import \"{module}@{version}\" \"{name}\" (func ${short} {signature}))"
                );
            }
        }
        let escaped: String = self.text.iter().map(|b| format!("\\{b:02x}")).collect();
        let _ = write!(
            wat,
            r#"(memory (export "memory") {pages})
            (global $heap (mut i32) (i32.const 8192))
            (global $body (mut i32) (i32.const 0))
            (global $stream (mut i32) (i32.const 0))
            (global $count (mut i32) (i32.const 0))
            (data (i32.const 1024) "{escaped}")
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                (local $at i32)
                (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
                (global.set $heap (i32.add (local.get $at) (local.get 3)))
                (local.get $at))
            {functions}
            (func (export "wasi:http/incoming-handler@{version}#handle") (param $request i32) (param $out i32)
                (local $a i32) (local $b i32) (local $c i32)
                (global.set $heap (i32.const 8192))
                {handle})
            )"#,
            pages = self.pages,
            version = self.version,
            handle = self.handle,
        );
        wat
    }

    fn build(&self) -> Vec<u8> {
        encode(&self.wat(), self.version, "function")
    }
}

/// Makes a component from the text of a core module, for a world of `wit/wasi.wit`.
///
/// # Panics
/// When the text and the world do not fit: a mistake in the fixture.
fn encode(wat: &str, version: &str, world: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve
        .push_str("wasi.wit", &WIT.replace("VERSION", version))
        .expect("the fixture's WIT is well-formed");
    let world = resolve
        .select_world(&[package], Some(world))
        .expect("the fixture's WIT has the world");
    let mut module = wat::parse_str(wat).expect("the fixture's text is well-formed");
    wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .expect("metadata can be embedded");
    ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .and_then(|mut encoder| encoder.encode())
        .expect("the fixture's module fits its world")
}

fn handler(handle: &str, text: &[u8]) -> Vec<u8> {
    Module {
        handle,
        text,
        ..Module::default()
    }
    .build()
}

/// Answers 200 with this text. Different texts give different digests.
#[must_use]
pub fn hello(text: &str) -> Vec<u8> {
    hello_for(text, WASI_VERSION)
}

/// As [`hello`], built for another patch version of WASI, such as `0.2.0`.
#[must_use]
pub fn hello_for(text: &str, version: &str) -> Vec<u8> {
    let pages = u32::try_from(text.len() / 65536).expect("a text of less than 4 GiB") + 1;
    Module {
        version,
        handle: &format!(
            "(call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const {}))",
            text.len()
        ),
        text: text.as_bytes(),
        pages: pages + 1,
    }
    .build()
}

/// Answers this status with the body `status`.
#[must_use]
pub fn status(code: u16) -> Vec<u8> {
    handler(
        &format!(
            "(call $answer (local.get $out) (i32.const {code}) (i32.const 1024) (i32.const 6))"
        ),
        b"status",
    )
}

/// Answers 200 with the request's body, streaming.
#[must_use]
pub fn echo() -> Vec<u8> {
    handler(
        "(call $request-consume (local.get $request) (i32.const 64))
        (local.set $a (i32.load (i32.const 68)))
        (call $open (local.get $out) (i32.const 200))
        (drop (call $pump (local.get $a)))
        (call $close)
        (call $drop-request (local.get $request))",
        b"",
    )
}

/// Answers 200 with the request's path and query.
#[must_use]
pub fn path() -> Vec<u8> {
    handler(
        "(call $request-path (local.get $request) (i32.const 64))
        (call $answer (local.get $out) (i32.const 200) (i32.load (i32.const 68)) (i32.load (i32.const 72)))",
        b"",
    )
}

/// Answers how many calls its instance has served, this one included.
#[must_use]
pub fn counter() -> Vec<u8> {
    handler(
        "(global.set $count (i32.add (global.get $count) (i32.const 1)))
        (local.set $a (call $digits (global.get $count)))
        (call $answer (local.get $out) (i32.const 200) (local.get $a) (i32.sub (i32.const 272) (local.get $a)))
        (call $drop-request (local.get $request))",
        b"",
    )
}

/// Traps at once.
#[must_use]
pub fn trapping() -> Vec<u8> {
    handler("(unreachable)", b"")
}

/// Answers the head and a piece of the body, then traps.
#[must_use]
pub fn trapping_midway() -> Vec<u8> {
    handler(
        "(call $open (local.get $out) (i32.const 200))
        (drop (call $put (i32.const 1024) (i32.const 7)))
        (unreachable)",
        b"partial",
    )
}

/// Exits with a failure without an answer.
#[must_use]
pub fn exiting() -> Vec<u8> {
    handler("(call $exit (i32.const 1))", b"")
}

/// Loops for ever.
#[must_use]
pub fn looping() -> Vec<u8> {
    handler("(loop $for-ever (br $for-ever))", b"")
}

/// Answers the head, then loops for ever.
#[must_use]
pub fn looping_midway() -> Vec<u8> {
    handler(
        "(call $open (local.get $out) (i32.const 200))
        (drop (call $put (i32.const 1024) (i32.const 7)))
        (loop $for-ever (br $for-ever))",
        b"partial",
    )
}

/// Counts to `millions` of millions, then answers `done`: CPU time with an end.
#[must_use]
pub fn burning(millions: u32) -> Vec<u8> {
    let count = millions.checked_mul(1_000_000).expect("fewer than 4,294");
    handler(
        &format!(
            "(loop $more
                (local.set $a (i32.add (local.get $a) (i32.const 1)))
                (br_if $more (i32.lt_u (local.get $a) (i32.const {count}))))
            (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 4))"
        ),
        b"done",
    )
}

/// Asks for memory until it is refused, then traps.
#[must_use]
pub fn hog() -> Vec<u8> {
    handler(
        "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
        (unreachable)",
        b"",
    )
}

/// Asks for memory until it is refused, then answers `full`: a refusal need not be the end.
#[must_use]
pub fn frugal() -> Vec<u8> {
    handler(
        "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
        (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 4))",
        b"full",
    )
}

/// Answers and writes a body without end, as long as somebody reads it.
#[must_use]
pub fn endless_body() -> Vec<u8> {
    handler(
        "(call $open (local.get $out) (i32.const 200))
        (loop $more (br_if $more (i32.eqz (call $put (i32.const 1024) (i32.const 4096)))))",
        &[b'x'; 4096],
    )
}

/// Answers `ok` to `/` (so that an upload's probe is content) and does by its path what a bad function does otherwise: `/loop`
/// loops for ever, `/trap` traps, `/memory` asks for memory until it is refused and then traps, `/body` writes a body without end,
/// anything else answers `ok`.
#[must_use]
pub fn misbehaving() -> Vec<u8> {
    handler(
        "(call $request-path (local.get $request) (i32.const 64))
        (if (i32.gt_u (i32.load (i32.const 72)) (i32.const 1)) (then
            (local.set $a (i32.load8_u (i32.add (i32.load (i32.const 68)) (i32.const 1))))
            (if (i32.eq (local.get $a) (i32.const 108)) (then (loop $for-ever (br $for-ever))))
            (if (i32.eq (local.get $a) (i32.const 116)) (then (unreachable)))
            (if (i32.eq (local.get $a) (i32.const 109)) (then
                (loop $grow (br_if $grow (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
                (unreachable)))
            (if (i32.eq (local.get $a) (i32.const 98)) (then
                (call $open (local.get $out) (i32.const 200))
                (loop $more (br_if $more (i32.eqz (call $put (i32.const 1024) (i32.const 4096)))))
                (return)))))
        (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 2))",
        b"ok",
    )
}

/// Returns without an answer.
#[must_use]
pub fn no_response() -> Vec<u8> {
    handler("", b"")
}

/// Sets an error (`internal-error`) instead of a response.
#[must_use]
pub fn answers_error() -> Vec<u8> {
    handler(
        "(call $respond (local.get $out) (i32.const 1) (i32.const 38)
            (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))",
        b"",
    )
}

/// Waits this long, then answers `awake`.
#[must_use]
pub fn sleeping(milliseconds: u32) -> Vec<u8> {
    handler(
        &format!(
            "(call $sleep (i64.const {}))
            (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 5))",
            u64::from(milliseconds) * 1_000_000
        ),
        b"awake",
    )
}

/// Answers, then waits this long, then prints `after` to its standard output.
#[must_use]
pub fn lingering(milliseconds: u32) -> Vec<u8> {
    handler(
        &format!(
            "(call $answer (local.get $out) (i32.const 200) (i32.const 1030) (i32.const 4))
            (call $sleep (i64.const {}))
            (call $write (call $stdout) (i32.const 1024) (i32.const 6) (i32.const 0))",
            u64::from(milliseconds) * 1_000_000
        ),
        b"after\nsent",
    )
}

/// Prints to standard output and standard error, then answers `logged`.
#[must_use]
pub fn logging(stdout: &str, stderr: &str) -> Vec<u8> {
    let text = format!("logged{stdout}{stderr}");
    handler(
        &format!(
            "(call $write (call $stdout) (i32.const 1030) (i32.const {0}) (i32.const 0))
            (call $write (call $stderr) (i32.const {1}) (i32.const {2}) (i32.const 0))
            (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 6))",
            stdout.len(),
            1030 + stdout.len(),
            stderr.len()
        ),
        text.as_bytes(),
    )
}

/// Prints this many lines of eight octets to its standard output, then answers `logged`.
#[must_use]
pub fn chatty(lines: u32) -> Vec<u8> {
    handler(
        &format!(
            "(local.set $b (call $stdout))
            (loop $more
                (call $write (local.get $b) (i32.const 1030) (i32.const 8) (i32.const 0))
                (local.set $a (i32.add (local.get $a) (i32.const 1)))
                (br_if $more (i32.lt_u (local.get $a) (i32.const {lines}))))
            (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 6))"
        ),
        b"logged1234567\n",
    )
}

/// Answers the value of this environment variable, or 404 if it is not set.
#[must_use]
pub fn env_dump(name: &str) -> Vec<u8> {
    handler(
        &format!(
            "(call $environment (i32.const 64))
            (local.set $a (i32.load (i32.const 64)))
            (local.set $b (i32.add (local.get $a) (i32.mul (i32.const 16) (i32.load (i32.const 68)))))
            (block $missing
                (loop $more
                    (br_if $missing (i32.ge_u (local.get $a) (local.get $b)))
                    (if (i32.eq (i32.load offset=4 (local.get $a)) (i32.const {len}))
                        (then
                            (local.set $c (i32.const 0))
                            (block $differs
                                (loop $compare
                                    (if (i32.eq (local.get $c) (i32.const {len}))
                                        (then
                                            (call $answer (local.get $out) (i32.const 200)
                                                (i32.load offset=8 (local.get $a)) (i32.load offset=12 (local.get $a)))
                                            (return)))
                                    (br_if $differs (i32.ne
                                        (i32.load8_u (i32.add (i32.load (local.get $a)) (local.get $c)))
                                        (i32.load8_u (i32.add (i32.const 1024) (local.get $c)))))
                                    (local.set $c (i32.add (local.get $c) (i32.const 1)))
                                    (br $compare)))))
                    (local.set $a (i32.add (local.get $a) (i32.const 16)))
                    (br $more)))
            (call $answer (local.get $out) (i32.const 404) (i32.const 1024) (i32.const 0))",
            len = name.len()
        ),
        name.as_bytes(),
    )
}

/// Sends `GET /` over plain HTTP to this authority (`host:port`) and answers 200 with the body that came back, or 502 with
/// the number of the wasi:http error-code (`15` is a denied request, `4` a prohibited address).
#[must_use]
pub fn outbound(authority: &str) -> Vec<u8> {
    handler(
        &format!(
            "(local.set $a (call $out-new (call $fields-new)))
            (drop (call $out-scheme (local.get $a) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0)))
            (drop (call $out-authority (local.get $a) (i32.const 1) (i32.const 1024) (i32.const {len})))
            (drop (call $out-path (local.get $a) (i32.const 1) (i32.const {slash}) (i32.const 1)))
            (call $send (local.get $a) (i32.const 0) (i32.const 0) (i32.const 64))
            (block $failed
                (if (i32.load8_u (i32.const 64))
                    (then (local.set $c (i32.load8_u (i32.const 72))) (br $failed)))
                (local.set $a (i32.load (i32.const 72)))
                (local.set $b (call $future-subscribe (local.get $a)))
                (call $block (local.get $b))
                (call $drop-pollable (local.get $b))
                (call $future-get (local.get $a) (i32.const 64))
                (if (i32.load8_u (i32.const 80))
                    (then (local.set $c (i32.load8_u (i32.const 88))) (br $failed)))
                (call $in-consume (i32.load (i32.const 88)) (i32.const 64))
                (local.set $b (i32.load (i32.const 68)))
                (call $open (local.get $out) (i32.const 200))
                (drop (call $pump (local.get $b)))
                (call $close)
                (return))
            (local.set $a (call $digits (local.get $c)))
            (call $answer (local.get $out) (i32.const 502) (local.get $a) (i32.sub (i32.const 272) (local.get $a)))",
            len = authority.len(),
            slash = 1024 + authority.len(),
        ),
        format!("{authority}/").as_bytes(),
    )
}

/// Imports two interfaces that no network offers: `fdn:foreign/things@1.0.0` and `acme:store/kv@0.2.0`.
#[must_use]
pub fn foreign_import() -> Vec<u8> {
    handler("(call $touch) (call $poke)", b"")
}

/// A component that exports something else than a handler: `fdn:fixtures/shape`.
#[must_use]
pub fn no_handler() -> Vec<u8> {
    encode(
        r#"(module (func (export "fdn:fixtures/shape#area") (param i32) (result i32)
            (i32.mul (local.get 0) (local.get 0))))"#,
        WASI_VERSION,
        "library",
    )
}

/// Not a component: a core module.
#[must_use]
pub fn core_module() -> Vec<u8> {
    wat::parse_str("(module (func (export \"run\")))").expect("the fixture's text is well-formed")
}

/// Not a whole component: the first half of [`echo`].
#[must_use]
pub fn truncated() -> Vec<u8> {
    let mut bytes = echo();
    bytes.truncate(bytes.len() / 2);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fixture_is_well_formed() {
        for component in [
            hello("hi"),
            hello_for("hi", "0.2.0"),
            status(404),
            echo(),
            path(),
            counter(),
            trapping(),
            trapping_midway(),
            exiting(),
            looping(),
            looping_midway(),
            burning(1),
            hog(),
            frugal(),
            endless_body(),
            no_response(),
            answers_error(),
            sleeping(1),
            lingering(1),
            logging("a", "b"),
            chatty(2),
            env_dump("NAME"),
            outbound("127.0.0.1:1"),
            foreign_import(),
            no_handler(),
        ] {
            assert_eq!(component[..8], *b"\0asm\x0d\0\x01\0");
        }
        assert_eq!(core_module()[..8], *b"\0asm\x01\0\0\0");
        assert!(truncated().len() < echo().len());
        assert_ne!(hello("a"), hello("b"));
    }
}
