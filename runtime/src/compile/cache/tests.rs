use std::borrow::Cow;

use wasmtime::{CacheStore, Config, OptLevel};

use super::lookup::PACK_MIN;
use super::*;
use crate::compile::{CompileReport, in_process};

/// A component with as many functions as a language engine adds, plus one that differs from version to version.
fn component(functions: u32, version: u32) -> Vec<u8> {
    let body = |i: u32| {
        let step = format!("(i32.add (i32.mul (local.get 0) (i32.const 3)) (i32.const {i}))");
        let steps = format!("(local.set 0 {step})").repeat(24);
        format!(
            "(func (export \"f{i}\") (param i32) (result i32) {steps} (i32.load (local.get 0)))"
        )
    };
    let functions: String = (0..functions).map(body).collect();
    let own = format!(
        "(func (export \"own\") (result i32) (call 0 (i32.const {version})))
         (data (i32.const 8) \"version {version}\")"
    );
    let text = format!("(component (core module (memory 1) {functions} {own}))");
    wat::parse_str(text).expect("well-formed")
}

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn packs(&self) -> PathBuf {
        self.folder.path().join("packs")
    }

    fn cache(&self, limit: ByteSize) -> CompileCache {
        CompileCache::open(self.packs(), limit).expect("a cache")
    }

    /// Returns the machine code and the report of the compilation.
    fn compile(&self, component: &[u8], cache: Option<&CompileCache>) -> (Vec<u8>, CompileReport) {
        let (input, output) = (self.file("in.wasm"), self.file("out.cwasm"));
        std::fs::write(&input, component).expect("written");
        let sealed = in_process(&input, &output, cache).expect("it compiles");
        let report = sealed.publish().expect("it has its names");
        (std::fs::read(&output).expect("a file"), report)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn found(report: CompileReport) -> CacheUse {
    report.cache.expect("compiled with a cache")
}

const LARGE: ByteSize = ByteSize::from_mib(256);
const FUNCTIONS: u32 = 600;

#[test]
fn the_next_version_has_nearly_all_of_it_and_the_same_machine_code() {
    let bench = Bench::new();
    let cache = bench.cache(LARGE);
    let (first, second) = (component(FUNCTIONS, 1), component(FUNCTIONS, 2));
    let (code, report) = bench.compile(&first, Some(&cache));
    assert_eq!(code, bench.compile(&first, None).0);
    let made = found(report).made.expect("a pack");
    assert_eq!(cache.names(), BTreeSet::from([made]));
    assert_eq!(
        cache
            .unreplicated()
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>(),
        [made]
    );

    // The cache works after a restart, too.
    let cache = bench.cache(LARGE);
    let (code, report) = bench.compile(&second, Some(&cache));
    assert_eq!(code, bench.compile(&second, None).0);
    let report = found(report);
    assert!(report.hits >= u64::from(FUNCTIONS), "{report:?}");
    // A few are looked up under another key, depending on what a thread happened to compile before them (ADR 0027).
    assert!(
        (1..u64::from(FUNCTIONS / 5)).contains(&report.misses),
        "{report:?}"
    );
    assert_eq!((report.used, report.made), (vec![made], None));
    assert_eq!(cache.names(), BTreeSet::from([made]));
}

#[test]
fn damage_costs_time_and_nothing_else() {
    let bench = Bench::new();
    let component = component(FUNCTIONS, 1);
    let (expected, _) = bench.compile(&component, None);
    let size = {
        let cache = bench.cache(LARGE);
        bench.compile(&component, Some(&cache));
        cache.size()
    };
    // In the head, in the entries, and among the values.
    for at in [3, 20, 500, size / 2, size - 1] {
        let cache = bench.cache(LARGE);
        let made = *cache.names().first().expect("a pack");
        let mut bytes = std::fs::read(cache.path(&made)).expect("a file");
        bytes[usize::try_from(at).expect("small")] ^= 1;
        std::fs::write(cache.path(&made), bytes).expect("written");
        let (code, report) = bench.compile(&component, Some(&cache));
        assert!(code == expected, "byte {at}");
        let report = found(report);
        assert_eq!(report.damaged, [made], "byte {at}");
        // Even if all functions but one were usable, the pack is removed; it is made again when it is needed next.
        let anew = match report.made {
            Some(anew) => anew,
            None => {
                assert!(report.hits > 0, "byte {at}");
                assert!(cache.names().is_empty(), "byte {at}");
                let (code, report) = bench.compile(&component, Some(&cache));
                assert!(code == expected, "byte {at}");
                found(report).made.expect("a pack")
            }
        };
        assert_eq!(cache.names(), BTreeSet::from([anew]), "byte {at}");
    }
    // A truncated pack is detected when the cache is opened.
    let cache = bench.cache(LARGE);
    let path = cache.path(cache.names().first().expect("a pack"));
    let bytes = std::fs::read(&path).expect("a file");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("written");
    assert!(bench.cache(LARGE).names().is_empty());
    assert!(!path.exists());
}

#[test]
fn the_pack_whose_use_is_longest_ago_goes_first() {
    let bench = Bench::new();
    // Components with different numbers of functions differ in their references: each has a pack of its own.
    let cache = bench.cache(LARGE);
    let components = [1000, 2000, 3000].map(|base| wider(base, FUNCTIONS));
    let made = components.each_ref().map(|component| {
        let made = found(bench.compile(component, Some(&cache)).1).made;
        made.expect("a pack")
    });
    let sizes = cache.unreplicated();
    let all: u64 = sizes.iter().map(|(_, size)| size).sum();
    assert_eq!((sizes.len(), cache.size()), (3, all));
    // The first is used again, so the second one is now the oldest.
    assert_eq!(
        found(bench.compile(&components[0], Some(&cache)).1).used,
        [made[0]]
    );
    drop(cache);
    let cache = bench.cache(ByteSize::from_bytes(all - 1));
    assert_eq!(cache.names(), BTreeSet::from([made[0], made[2]]));
    assert_eq!(cache.evicted(), 1);
    assert!(!cache.path(&made[1]).exists());
    // A compilation adds nothing that is larger than its share.
    let cache = bench.cache(ByteSize::from_bytes(PACK_MIN));
    assert!(cache.names().is_empty());
    assert_eq!(
        found(bench.compile(&components[0], Some(&cache)).1).made,
        None
    );
    assert_eq!(cache.size(), 0);
}

/// Functions that occur with no other `base`.
fn wider(base: u32, functions: u32) -> Vec<u8> {
    let body = |i: u32| {
        let step = format!(
            "(i32.mul (i32.add (local.get 0) (i32.const {})) (i32.const 5))",
            base + i
        );
        let steps = format!("(local.set 0 {step})").repeat(24);
        format!(
            "(func (export \"f{i}\") (param i32) (result i32) {steps} (i32.div_u (local.get 0) (i32.const {base})))"
        )
    };
    let functions: String = (0..functions).map(body).collect();
    wat::parse_str(format!("(component (core module {functions}))")).expect("well-formed")
}

#[test]
fn a_compilation_adds_no_more_than_its_share() {
    let bench = Bench::new();
    let cache = bench.cache(ByteSize::from_bytes(8 * PACK_MIN));
    let report = found(bench.compile(&component(4 * FUNCTIONS, 1), Some(&cache)).1);
    let made = report.made.expect("a pack");
    assert_eq!(cache.names(), BTreeSet::from([made]));
    // The share of the values, plus the head and the entries.
    assert!(cache.size() < 4 * PACK_MIN, "{}", cache.size());
}

/// Records the keys that were looked up.
#[derive(Debug, Default)]
struct Keys(Mutex<BTreeSet<Vec<u8>>>);

impl CacheStore for Keys {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.0.lock().expect("not poisoned").insert(key.to_owned());
        None
    }

    fn insert(&self, _: &[u8], _: Vec<u8>) -> bool {
        true
    }
}

/// The compiler's keys of the functions of a component.
fn keys(level: OptLevel, component: &[u8]) -> BTreeSet<Vec<u8>> {
    let keys = Arc::new(Keys::default());
    let mut config = Config::new();
    config.cranelift_opt_level(level);
    config
        .enable_incremental_compilation(Arc::clone(&keys) as _)
        .expect("the feature");
    let engine = wasmtime::Engine::new(&config).expect("an engine");
    engine.precompile_component(component).expect("it compiles");
    keys.0.lock().expect("not poisoned").clone()
}

#[test]
fn the_compilers_key_tells_functions_and_settings_apart() {
    let component = component(20, 1);
    let fast = keys(OptLevel::Speed, &component);
    assert!(fast.len() > 20 && fast.iter().all(|key| key.len() == 32));
    // All but a few: the compiler's key also covers what an earlier function left in the same buffers, which depends on how threads were scheduled.
    let again = keys(OptLevel::Speed, &component);
    assert!(again.intersection(&fast).count() > 15);
    assert!(keys(OptLevel::None, &component).is_disjoint(&fast));
}

#[test]
fn packs_of_another_engine_are_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let values = BTreeMap::from([([7; 32], b"code".to_vec())]);
    let path = folder.path().join("new");
    let file = File::create(&path).expect("a file");
    let (name, _) = pack::write(&file, "e1", &values).expect("written");
    std::fs::rename(&path, pack_file(folder.path(), &name)).expect("renamed");
    let own = Lookup::open(folder.path(), "e1", u64::MAX);
    assert_eq!(own.get(&[7; 32]).as_deref(), Some(&b"code"[..]));
    let other = Lookup::open(folder.path(), "e2", u64::MAX);
    assert_eq!(other.get(&[7; 32]), None);
    assert_eq!(other.finish(Path::new("/dev/null")).damaged, [name]);
}

#[test]
fn a_pack_that_the_compiler_does_not_take_from_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let values = BTreeMap::from([([7; 32], b"of another version".to_vec())]);
    let path = folder.path().join("new");
    let file = File::create(&path).expect("a file");
    let (name, _) = pack::write(&file, "e1", &values).expect("written");
    std::fs::rename(&path, pack_file(folder.path(), &name)).expect("renamed");
    let lookup = Lookup::open(folder.path(), "e1", u64::MAX);
    assert!(lookup.get(&[7; 32]).is_some());
    assert!(lookup.insert(&[7; 32], b"of this one".to_vec()));
    assert_eq!(lookup.finish(Path::new("/dev/null")).damaged, [name]);
    assert!(!lookup.insert(b"no key", Vec::new()));
    assert_eq!(lookup.get(b"no key"), None);
}
