//! The message of a container's end: the summary of an out-of-memory failure, in a file that is there already.

use crate::{CAP, Place};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use weir_tests::harness::{Job, Suite};

pub(crate) fn termination(suite: &mut Suite) {
    suite.add("termination: the message names the cause, also where nothing is printed", || {
        let place = Place::new();
        let log = place.0.at("log");
        fs::write(&log, "").expect("a file");
        runs_out(&place, &log);
        let text = fs::read_to_string(&log).expect("the message");
        assert!(text.starts_with("weir: GPU OUT OF MEMORY") && text.len() <= 4096 && text.contains("cap"), "{text}");
    });
    suite.add("termination: the job's own message stays", || {
        let place = Place::new();
        let log = place.0.at("log");
        fs::write(&log, "mine").expect("a file");
        runs_out(&place, &log);
        assert_eq!(fs::read_to_string(&log).expect("the message"), "mine");
    });
    suite.add("termination: what is no file there is left alone: nothing is made, followed or waited for", || {
        let place = Place::new();
        runs_out(&place, &place.0.at("missing"));
        assert!(!place.0.at("missing").exists());
        fs::write(place.0.at("target"), "").expect("a file");
        symlink(place.0.at("target"), place.0.at("link")).expect("a link");
        runs_out(&place, &place.0.at("link"));
        assert_eq!(fs::read_to_string(place.0.at("target")).expect("the target"), "");
        let _ = Job::new("mkfifo").arg(place.0.at("fifo")).run().quiet();
        runs_out(&place, &place.0.at("fifo"));
        runs_out(&place, place.0.path());
        runs_out(&place, Path::new("/dev/full"));
    });
}

fn runs_out(place: &Place, log: &Path) {
    let _ = place.job(format!("jobs.py gets_all {CAP}"), "").env("WEIR_TERMINATION_LOG", log).run().quiet();
}
