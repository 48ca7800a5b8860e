//! Assembles core modules and turns them into components.
//!
//! `PRELUDE` holds the steps that most handlers share; only what a handler calls is included, so that a component imports no
//! more than it uses. The memory layout: 0..64 results of host calls, 64..128 a second such area, 256..1024
//! scratch space, 1024.. texts, 8192.. allocations of the host (reset at each call).

use std::fmt::Write as _;

use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

use super::WASI_VERSION;

const WIT: &str = include_str!("../../wit/wasi.wit");

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
        "[method]fields.set",
        "fields-set",
        "(param i32 i32 i32 i32 i32 i32)",
    ),
    (
        "wasi:http/types",
        "[method]fields.delete",
        "fields-delete",
        "(param i32 i32 i32 i32)",
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

/// Functions in text form; one is included in a module if the module or an included function calls it.
const PRELUDE: &[(&str, &str)] = &[
    // Sets the head with this status, and stores body and stream in the globals.
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
    // Writes to the open body in pieces that the stream accepts; returns 1 when the other side is closed.
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
    // Sends a complete answer.
    (
        "answer",
        r"(func $answer (param $out i32) (param $status i32) (param $at i32) (param $len i32)
        (call $open (local.get $out) (local.get $status))
        (drop (call $put (local.get $at) (local.get $len)))
        (call $close))",
    ),
    // The decimal digits of a number at 256..; returns their start, they end at 272.
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
    // Copies an incoming body to the open outgoing body; returns the number of bytes.
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

/// The parts of a component to be built.
pub(super) struct Module<'a> {
    pub(super) version: &'a str,
    /// The instructions of the handler; `$request` and `$out` are its parameters.
    pub(super) handle: &'a str,
    /// The text at address 1024.
    pub(super) text: &'a [u8],
    /// The size of the memory in pages.
    pub(super) pages: u32,
    /// Additional parts of the core module.
    pub(super) more: &'a str,
}

impl Default for Module<'_> {
    fn default() -> Self {
        Self {
            version: WASI_VERSION,
            handle: "",
            text: b"",
            pages: 1,
            more: "",
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
            {more}
            (func (export "wasi:http/incoming-handler@{version}#handle") (param $request i32) (param $out i32)
                (local $a i32) (local $b i32) (local $c i32)
                (global.set $heap (i32.const 8192))
                {handle})
            )"#,
            pages = self.pages,
            version = self.version,
            handle = self.handle,
            more = self.more,
        );
        wat
    }

    pub(super) fn build(&self) -> Vec<u8> {
        encode(&self.wat(), self.version, "function")
    }
}

/// Makes a component from the text of a core module, for a world of `wit/wasi.wit`.
///
/// # Panics
/// When the text does not match the world, which is a mistake in the fixture.
pub(super) fn encode(wat: &str, version: &str, world: &str) -> Vec<u8> {
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
