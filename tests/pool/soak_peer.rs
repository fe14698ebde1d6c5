//! The other process of the soak: opens exported blocks and reports what it finds in them.

use crate::api::{Api, context_on, ok};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use weir_cuda::{CUipcMem_flags, CUipcMemHandle};

/// The importing process as the soak sees it.
pub(crate) struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    opened: usize,
}

impl Peer {
    pub(crate) fn start() -> Self {
        let program = std::env::current_exe().expect("this program's path");
        let mut command = Command::new(program);
        let mut child = command
            .arg("--importer")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the importer starts");
        let to = child.stdin.take().expect("piped");
        let from = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, to, from, opened: 0 }
    }

    fn request(&mut self, question: &str) {
        writeln!(self.to, "{question}").expect("the importer listens");
        let mut answer = String::new();
        self.from.read_line(&mut answer).expect("the importer answers");
        assert_eq!(answer.trim(), "ok", "the importer was asked to {question}");
    }

    pub(crate) fn open(&mut self, api: &Api, ptr: u64) -> usize {
        let mut handle = CUipcMemHandle::default();
        // SAFETY: the place is a live local.
        ok(unsafe { (api.cuIpcGetMemHandle)(&raw mut handle, ptr) });
        let mut text = String::new();
        for byte in handle.reserved {
            let _ = write!(text, "{:02x}", byte as u8);
        }
        self.opened += 1;
        self.request(&format!("open {} {text}", self.opened));
        self.opened
    }

    pub(crate) fn check(&mut self, number: usize, words: u64, pattern: u32) {
        self.request(&format!("check {number} {words} {pattern}"));
    }

    pub(crate) fn close(&mut self, number: usize) {
        self.request(&format!("close {number}"));
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = writeln!(self.to, "end");
        let _ = self.child.wait();
    }
}

/// The importing process: one command a line.
pub(crate) fn importer() {
    let api = Api::load();
    context_on(api, 0);
    let mut opened = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("text");
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["open", number, handle] => {
                let byte = |at: usize| u8::from_str_radix(&handle[2 * at..2 * at + 2], 16).expect("hexadecimal");
                let handle = CUipcMemHandle { reserved: std::array::from_fn(|at| byte(at) as std::ffi::c_char) };
                let mut ptr = 0;
                let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0;
                // SAFETY: the place is a live local.
                ok(unsafe { (api.cuIpcOpenMemHandle_v2)(&raw mut ptr, handle, flags) });
                opened.insert(number.to_string(), ptr);
                println!("ok");
            }
            ["check", number, words, pattern] => {
                let words: usize = words.parse().expect("a number");
                let pattern: u32 = pattern.parse().expect("a number");
                let mut bytes = vec![0u32; words];
                // SAFETY: as many bytes as there is room for.
                ok(unsafe { (api.cuMemcpyDtoH_v2)(bytes.as_mut_ptr().cast(), opened[number], words * 4) });
                let wrong = bytes.iter().filter(|word| **word != pattern).count();
                if wrong == 0 {
                    println!("ok");
                } else {
                    println!("{wrong} of {words} words are not {pattern:#x}");
                }
            }
            ["close", number] => {
                // SAFETY: opened above and not closed yet.
                ok(unsafe { (api.cuIpcCloseMemHandle)(opened.remove(number).expect("opened")) });
                println!("ok");
            }
            _ => return,
        }
        let _ = std::io::stdout().flush();
    }
}
