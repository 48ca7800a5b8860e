//! All report the same revision: a DNS server in its answers and at its admin address, a gateway, and the controller.

use serde_json::Value;

use super::*;

impl Network {
    /// The value of a flag of `fdn up`.
    fn flag(&self, name: &str) -> &str {
        let values = self.flags.iter();
        let mut values = values.filter_map(|flag| flag.strip_prefix(name)?.strip_prefix('='));
        values.next().expect("the flag is set")
    }

    /// The JSON output of a command, or why it failed.
    fn json(&self, args: &[&str]) -> Result<Value, String> {
        let ran = self.fdn(&[args, &["-o", "json"]].concat());
        match ran.code {
            Some(0) => serde_json::from_str(&ran.out).map_err(|e| format!("{e}: {}", ran.out)),
            _ => Err(ran.err),
        }
    }
}

/// The value of a header in the output of `fdn invoke -i`.
fn header<'a>(printed: &'a str, name: &str) -> &'a str {
    let begin = format!("{name}: ");
    let value = printed.lines().find_map(|line| line.strip_prefix(&begin));
    value.unwrap_or_else(|| panic!("no {name}: {printed}"))
}

/// Planning continues, so all are queried until they report the same state.
pub(super) async fn is_one(network: &Network) {
    let client = "203.0.113.7";
    let lookup = ["dns", "lookup", "hello.fn.test", "--client", client];
    let (dns, admin) = (network.flag("--dns"), network.flag("--dns-admin"));
    wait::until("one revision everywhere", async || {
        let answered = network.json(&[&lookup[..], &["--dns", dns]].concat())?;
        let told = network.json(&[&lookup[..], &["--server", admin]].concat())?;
        let call = ["invoke", "hello", "-d", "x", "-i", "-H", "x-fdn-explain: 1"];
        let called = network.ok(&call);
        // The node records a call a moment after it is over.
        let traced = ["trace", header(&called, "x-request-id"), "--app", "hello"];
        let traced = network.json(&[&traced[..], &["--client", client]].concat())?;
        let said = [
            &answered["revision"],
            &told["steering"]["revision"],
            &traced["told"]["dns"],
        ];
        assert!(said[0].is_u64(), "{answered}");
        let served: u64 = header(&called, "x-fdn-revision").parse().expect("a number");
        // The plan and its binding have the same revision, and DNS does not answer with an earlier one.
        let why = &traced["explained"];
        let planned = [&why["plan"]["revision"], &why["bound"]["revision"]];
        let is_planned = planned[0].is_u64()
            && planned[0] == planned[1]
            && planned[0].as_u64() <= said[0].as_u64();
        let is_served = traced["told"]["nodes"] == served;
        if said.windows(2).all(|two| two[0] == two[1]) && is_planned && is_served {
            Ok(())
        } else {
            Err(format!(
                "{said:?}, planned {planned:?}, served {served}: {traced}"
            ))
        }
    })
    .await;
    let page = network.ok(&[&lookup[..], &["--dns", dns]].concat());
    for words in ["revision", "127.0.3.", " of the client", dns] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let none = [
        "dns",
        "lookup",
        "none.fn.test",
        "--client",
        client,
        "--dns",
        dns,
    ];
    let none = network.fdn(&none);
    assert_eq!(none.code, Some(4), "{}", none.err);
}
