//! The page as a file: whole, and with nothing in it that a name could break. Its behaviour in a browser is tested in
//! tests/html.

use std::collections::BTreeSet;

use weir_forensics::report::{Options, Report};
use weir_forensics::synthetic::{End, Job, MIB};
use weir_forensics::{Run, html};
use weir_journal::{Class, Failure, STREAM_UNKNOWN, Situation};

/// The page of a job whose names are these.
fn page_of(names: &[&str]) -> String {
    let dir = std::env::temp_dir().join(format!("weir-html-{}-{}", std::process::id(), names.len()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    let mut job = Job::new(&dir, 1024).unwrap().called(&["python3", "</title><script>alert(1)</script>.py", "<!--"]);
    for name in names {
        let by = job.by(name, name, &[(name, name, 3)]);
        job.alloc(by, MIB);
    }
    let path = job.end(End::Exit).unwrap();
    let mut page = Vec::new();
    html::write(&Run::open(&path).unwrap(), &[], &Options::default(), &mut page, |_, _| ()).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    String::from_utf8(page).unwrap()
}

/// The data that a page carries.
fn facts(page: &str) -> serde_json::Value {
    let facts = page.split_once("id=\"facts\">").unwrap().1.split_once("</script>").unwrap().0;
    serde_json::from_str(facts).unwrap()
}

#[test]
fn names_cannot_leave_the_place_where_they_stand() {
    let plain = page_of(&[]);
    let hostile = page_of(&["</script><script>x()</script>", "<!--<script>", "</SCRIPT >", "\u{2028}&lt;'\"`"]);
    for part in ["<script", "</script", "<!--", "</title"] {
        let count = |page: &str| page.to_lowercase().matches(part).count();
        assert_eq!(count(&hostile), count(&plain), "{part}");
    }
    assert_eq!(plain.matches("</title").count(), 1);
    assert!(hostile.contains("\\u003c/script>\\u003cscript>x()"), "the name itself must be there");
}

#[test]
fn a_page_opens_where_the_options_say() {
    let dir = std::env::temp_dir().join(format!("weir-html-{}-options", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    let mut job = Job::new(&dir, 1024).unwrap();
    for device in [1, 2] {
        job.journal.set_device(device, [b'a' + device; 16], 40 << 30, "Made-up GPU");
    }
    // Each requests from a line of its own: a failure that repeats itself is dumped once.
    let mut fails = |device, requested| {
        let by = job.who("Conv2D", (requested >> 30) as u32);
        let failure = Failure { device, class: Class::Block, stream: STREAM_UNKNOWN, requested, result: 2, by };
        job.journal.out_of_memory(&failure, &Situation::default());
        job.alloc_as(Class::Block, device, by, MIB);
    };
    fails(0, 50 << 30);
    fails(1, 60 << 30);
    fails(1, 70 << 30);
    let path = job.end(End::Exit).unwrap();
    let run = Run::open(&path).unwrap();
    let opened = |options: &Options| {
        let mut page = Vec::new();
        html::write(&run, &[], options, &mut page, |_, _| ()).unwrap();
        let facts = facts(std::str::from_utf8(&page).unwrap());
        // What was requested at the moment at which the page opens.
        let mark = facts["marks"].as_array().unwrap().iter().find(|mark| mark["entry"] == facts["moment"]);
        let requested = mark.map(|mark| mark["requested"].as_u64().unwrap() >> 30);
        (facts["device"].as_u64().unwrap(), requested, facts["rows"].as_u64().unwrap())
    };
    let plain = Options::default();
    assert_eq!(opened(&plain), (1, Some(70), 50));
    assert_eq!(opened(&Options { oom: Some(1), ..plain.clone() }), (0, Some(50), 50));
    assert_eq!(opened(&Options { oom: Some(2), holders: 7, ..plain.clone() }), (1, Some(60), 7));
    assert_eq!(opened(&Options { device: Some(0), ..plain.clone() }), (0, Some(50), 50));
    assert_eq!(opened(&Options { device: Some(2), ..plain }), (2, None, 50));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_result_and_a_workspace_of_one_operation_have_their_own_roles() {
    let dir = std::env::temp_dir().join(format!("weir-html-{}-roles", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    let mut job = Job::new(&dir, 1024).unwrap();
    let line = [("/home/me/train.py", "train", 30)];
    let (output, workspace) = (job.by("model/MatMul", "output", &line), job.by("model/MatMul", "temp", &line));
    job.alloc(output, 5 * MIB);
    job.alloc(workspace, 3 * MIB);
    let run = Run::open(&job.end(End::Exit).unwrap()).unwrap();
    let report = Report::of(&run, &Options::default(), |_, _| ()).unwrap();
    let said: BTreeSet<String> = report.roles.iter().map(|share| share.role.word().to_owned()).collect();
    let mut page = Vec::new();
    html::write(&run, &[], &Options::default(), &mut page, |_, _| ()).unwrap();
    let facts = facts(std::str::from_utf8(&page).unwrap());
    let text =
        |number: &serde_json::Value| facts["texts"][number.as_u64().unwrap() as usize].as_str().unwrap().to_owned();
    let shown: BTreeSet<String> = facts["holders"].as_array().unwrap().iter().map(|one| text(&one["role"])).collect();
    assert_eq!((said.len(), &shown), (2, &said));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_page_names_no_other_place() {
    let page = page_of(&["a"]);
    for part in ["http:", "https:", "src=", "@import", "url(", "{{"] {
        assert!(!page.contains(part), "the page has {part}");
    }
    assert!(page.contains("default-src 'none'"));
}
