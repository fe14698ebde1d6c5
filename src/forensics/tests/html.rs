//! The page as a file: whole, and with nothing in it that a name could break. Its behaviour in a browser is tested in
//! tests/html.

use weir_forensics::report::Options;
use weir_forensics::synthetic::{End, Job, MIB};
use weir_forensics::{Run, html};

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
    html::write(&Run::open(&path).unwrap(), &Options::default(), &mut page, |_, _| ()).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    String::from_utf8(page).unwrap()
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
fn the_page_names_no_other_place() {
    let page = page_of(&["a"]);
    for part in ["http:", "https:", "src=", "@import", "url(", "{{"] {
        assert!(!page.contains(part), "the page has {part}");
    }
    assert!(page.contains("default-src 'none'"));
}
