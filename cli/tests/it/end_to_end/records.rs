//! Text records and the TTL of DNS answers, as declared in files.

use super::*;

/// A tenant's file, and the results of `fdn apply` for it.
struct Files<'a> {
    network: &'a Network,
    folder: tempfile::TempDir,
}

impl Files<'_> {
    fn write(&self, text: &str) {
        std::fs::write(self.folder.path().join("tenant.yaml"), text).expect("written");
    }

    fn run(&self, words: &[&str]) -> Ran {
        let path = self.folder.path().join("tenant.yaml");
        let path = path.display().to_string();
        self.network.fdn(&[&["apply", "-f", &path], words].concat())
    }

    /// The names of the items that change, or would change.
    fn names(&self, words: &[&str]) -> Vec<String> {
        let ran = self.run(&[&["-o", "name"], words].concat());
        assert_eq!(ran.code, Some(0), "{}\n{}", ran.out, ran.err);
        ran.out.lines().map(str::to_owned).collect()
    }

    /// The text form of a dry run.
    fn page(&self) -> String {
        let ran = self.run(&["--dry-run"]);
        assert_eq!(ran.code, Some(0), "{}\n{}", ran.out, ran.err);
        ran.out
    }

    /// The names that have text records.
    fn there(&self) -> Vec<String> {
        let names = self.network.ok(&["dns", "txt", "list", "-o", "name"]);
        names.lines().map(str::to_owned).collect()
    }

    /// Asserts that the file is rejected before anything is changed, with file, line, and these words.
    fn refused(&self, text: &str, words: &[&str]) {
        let before = self.there();
        self.write(text);
        let Ran { code, err, .. } = self.run(&[]);
        assert_eq!(code, Some(2), "{err}");
        for word in words {
            assert!(err.contains(word), "{word}: {err}");
        }
        assert_eq!(self.there(), before);
    }
}

const DMARC: &str = "_dmarc.named.fn.test";
const KEY: &str = "s1._domainkey.named.fn.test";
const APP: &str = "set: dns\napps:\n  named:\n    component: named.wasm\n";

/// Text records are created, changed to exactly what is declared, and deleted, except for those that files cannot declare.
pub(super) fn applied(network: &Network) {
    let folder = tempfile::tempdir().expect("folder");
    let component = components::hello("named");
    std::fs::write(folder.path().join("named.wasm"), component).expect("written");
    let files = Files { network, folder };
    made_and_changed(&files);
    lifetimes(&files);
    refused(&files);
    pruned(&files);
}

fn made_and_changed(files: &Files<'_>) {
    let network = files.network;
    files.write(&format!(
        "{APP}    dns: {{ ttl: 60s }}\ntxt:\n  _DMARC.named.fn.test.: {{ values: [p=none, other], ttl: 5m }}\n  {KEY}: {{ values: [k=rsa] }}\n"
    ));
    let (dmarc, key) = (format!("txt/{DMARC}"), format!("txt/{KEY}"));
    let all = ["app/named", "dns/named", &dmarc, &key];
    assert_eq!(files.names(&["--dry-run"]), all, "what would be");
    assert_eq!(files.there(), [""; 0], "and is not");
    assert_eq!(files.names(&[]), all, "what was done");
    for words in [&["--dry-run", "--prune"][..], &[]] {
        assert_eq!(files.names(words), [""; 0], "nothing is left to do");
    }
    assert_eq!(files.there(), [DMARC, KEY]);
    let shown = network.ok(&["dns", "ttl", "named"]);
    assert!(shown.contains("1m") && shown.contains("the app"), "{shown}");

    // The declared values replace all others, in any order; unspecified fields have their defaults.
    files.write(&format!(
        "{APP}txt:\n  {DMARC}: {{ values: [other, p=reject] }}\n  {KEY}: {{ values: [k=rsa] }}\n"
    ));
    let page = files.page();
    for line in [
        "- - p=none",
        "+ - p=reject",
        "- ttl: 5m",
        "+ ttl: 1m",
        "1 change would be made",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert!(!page.contains("- other"), "what stays is not shown: {page}");
    assert!(
        network.ok(&["dns", "txt", "list"]).contains("p=none"),
        "a dry run changes nothing"
    );
    assert_eq!(files.names(&[]), [dmarc.as_str()]);
    network.ok(&["dns", "txt", "add", DMARC, "by hand"]);
    assert!(files.page().contains("- - by hand"));
    assert_eq!(files.names(&[]), [dmarc.as_str()]);
    network.ok(&["dns", "txt", "set", KEY, "k=rsa", "--expires-in", "1h"]);
    assert!(files.page().contains("- ends: 2"), "{}", files.page());
    assert_eq!(files.names(&[]), [key.as_str()]);
    assert_eq!(files.names(&[]), [""; 0]);
    let listed = network.ok(&["dns", "txt", "list"]);
    assert!(
        listed.contains("p=reject") && !listed.contains("by hand"),
        "{listed}"
    );
}

/// An app whose file does not mention it keeps its TTL; `{}` resets it to the network's.
fn lifetimes(files: &Files<'_>) {
    let network = files.network;
    let is_own = || network.ok(&["dns", "ttl", "named"]).contains("the app");
    assert!(is_own(), "it was not named in the file any more, and stays");
    files.write(&format!("{APP}    dns: {{ ttl: 30s }}\n"));
    let page = files.page();
    assert!(
        page.contains("- ttl: 1m") && page.contains("+ ttl: 30s"),
        "{page}"
    );
    assert_eq!(files.names(&[]), ["dns/named"]);
    files.write(&format!("{APP}    dns: {{}}\n"));
    assert!(files.page().contains("- ttl: 30s"), "{}", files.page());
    assert!(is_own(), "a dry run changes nothing");
    assert_eq!(files.names(&[]), ["dns/named"]);
    assert!(!is_own());
    assert_eq!(files.names(&[]), [""; 0]);
}

fn refused(files: &Files<'_>) {
    let txt = |entry: &str| format!("{APP}txt:\n  {entry}\n");
    let place = |name: &str| format!("tenant.yaml:6: txt.{name}: ");
    for (name, word) in [
        ("_dmarc.example.org", "write it as _NAME.APP.fn.test"),
        ("_dmarc.nobody.fn.test", "nobody.fn.test is not an app"),
        ("named.fn.test", "take a name below it: _NAME.named.fn.test"),
        ("www.named.fn.test", "_www.named.fn.test"),
    ] {
        let text = txt(&format!("{name}: {{ values: [a] }}"));
        files.refused(&text, &[&place(name), word, "FDN-2050"]);
    }
    let text = txt(&format!("{DMARC}: {{ values: [a], ttl: 2h }}"));
    files.refused(&text, &[&place(DMARC), "from 10s to 1h, not 2h"]);
    let text = txt("_acme-challenge.named.fn.test: { values: [a] }");
    files.refused(
        &text,
        &[&place("_acme-challenge.named.fn.test"), "fdn dns txt add"],
    );
    files.refused(
        &format!("{APP}    dns: {{ ttl: 6m }}\n"),
        &["tenant.yaml:5: apps.named.dns: ttl: ", "from 5s to 5m"],
    );
    // The maximum number of values is a setting of the controller: it rejects them, and the position is reported.
    files.write(&txt(&format!(
        "{DMARC}: {{ values: [a, b, c, d, e, f, g, h, i] }}"
    )));
    let Ran { code, err, .. } = files.run(&[]);
    assert_ne!(code, Some(0), "{err}");
    for words in [
        "tenant.yaml:6) could not be changed; 0 of 1 changes were made",
        "FDN-2072",
        "more than 8 are not allowed",
    ] {
        assert!(err.contains(words), "{words}: {err}");
    }
}

fn pruned(files: &Files<'_>) {
    let network = files.network;
    let challenge = "_acme-challenge.named.fn.test";
    network.ok(&["dns", "txt", "add", challenge, "t", "--expires-in", "1h"]);
    network.ok(&["dns", "txt", "set", "_own.named.fn.test", "by hand"]);
    files.write(APP);
    let page = files.page();
    let line = format!("txt/{DMARC} is no longer declared; --prune takes it away");
    assert!(page.contains(&line), "{line}: {page}");
    assert_eq!(files.names(&[]), [""; 0], "without --prune they stay");
    let gone = [format!("txt/{DMARC}"), format!("txt/{KEY}")];
    assert_eq!(files.names(&["--dry-run", "--prune"]), gone);
    assert_eq!(files.there().len(), 4, "a dry run changes nothing");
    assert_eq!(files.names(&["--prune"]), gone);
    assert_eq!(
        files.there(),
        [challenge, "_own.named.fn.test"],
        "what a certificate's client and others set stays"
    );
    assert_eq!(files.names(&["--prune"]), [""; 0]);

    // Deleting an app does not delete a record that is still declared.
    let txt = format!("txt:\n  {DMARC}: {{ values: [a] }}\n");
    files.write(&format!("{APP}{txt}"));
    assert_eq!(files.names(&[]), [format!("txt/{DMARC}")]);
    files.write(&format!("set: dns\n{txt}"));
    let Ran { code, err, .. } = files.run(&["--prune"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("named.fn.test is not an app"), "{err}");
    files.write("set: dns\n");
    let both = [format!("txt/{DMARC}"), "app/named".to_owned()];
    assert_eq!(files.names(&["--prune"]), both);
    assert_eq!(files.there(), [""; 0]);
}
