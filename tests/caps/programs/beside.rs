//! What happens beside a thread: a capture that another thread keeps open, and memory lent to another process.

use crate::actor::{Actor, Block, Held, OK};
use crate::driver::cu::*;
use crate::op::{Op, What};
use crate::peer::Peer;
use std::ptr::null_mut;
use std::sync::mpsc;
use weir_cuda::*;

/// Another thread with an open capture.
pub(crate) struct Holder {
    end: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Actor {
    pub(crate) fn hold(&mut self, op: Op) -> bool {
        if self.holder.is_some() {
            return false;
        }
        let (end, reported) = mpsc::channel();
        let (ready, begun) = mpsc::channel();
        let (primary, note) = (self.context(0).ctx as usize, self.world.note);
        let bytes = if op.other & 1 == 0 { 0 } else { op.bytes };
        let thread = std::thread::spawn(move || {
            let must = |name: &str, code: CUresult| {
                if code != OK {
                    note.fail(&format!("answer: {name} beside an open capture was answered by {}", code.0));
                }
            };
            let (mut stream, mut graph, mut ptr) = (null_mut(), null_mut(), 0);
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            must("cuCtxSetCurrent", cuCtxSetCurrent(primary as CUcontext));
            must("cuStreamCreate", cuStreamCreate(&raw mut stream, 1));
            must("cuStreamBeginCapture", cuStreamBeginCapture_v2(stream, mode));
            if bytes > 0 && cuMemAllocAsync(&raw mut ptr, bytes as usize, stream) == OK {
                must("cuMemFreeAsync", cuMemFreeAsync(ptr, stream));
            }
            ready.send(()).ok();
            reported.recv().ok();
            must("cuStreamEndCapture", cuStreamEndCapture(stream, &raw mut graph));
            must("cuGraphDestroy", cuGraphDestroy(graph));
            must("cuStreamDestroy", cuStreamDestroy_v2(stream));
        });
        begun.recv().ok();
        self.holder = Some(Holder { end, thread });
        true
    }

    pub(crate) fn end_hold(&mut self) -> bool {
        let Some(holder) = self.holder.take() else { return false };
        drop(holder.end);
        holder.thread.join().is_ok()
    }

    /// Whether a capture is open beside this thread.
    pub(crate) fn holding(&self) -> bool {
        self.holder.is_some()
    }

    pub(crate) fn lend(&mut self, op: Op) -> bool {
        if self.peer.is_none() {
            return false;
        }
        if op.what == What::PeerDrop {
            self.peer.as_mut().into_iter().for_each(Peer::drop_all);
            self.blocks.iter_mut().flatten().for_each(|block| block.lent = false);
            return true;
        }
        let wanted = |block: &Block| match block.held {
            Held::Handle { users, .. } => op.what == What::PeerImport && users > 0,
            Held::Plain(_) => op.what == What::PeerOpen,
            _ => false,
        };
        let Some(at) = self.find(op.slot, wanted) else { return false };
        let Some(block) = self.blocks[at] else { return false };
        match block.held {
            Held::Handle { handle, .. } => {
                let fd = self.export(handle);
                if !self.peer.as_mut().is_some_and(|peer| peer.import(fd, block.bytes)) {
                    self.fail("answer: the second process could not import");
                }
                // SAFETY: the descriptor that the export made.
                unsafe { libc::close(fd) };
            }
            Held::Plain(ptr) => {
                self.enter(block.ctx);
                let mut handle = CUipcMemHandle::default();
                let code = cuIpcGetMemHandle(&raw mut handle, ptr);
                if self.world.spills && code == CUresult::CUDA_ERROR_INVALID_VALUE {
                    // Managed memory cannot be shared, and what is spilled may be that.
                    return true;
                }
                self.must("cuIpcGetMemHandle", code);
                if !self.peer.as_mut().is_some_and(|peer| peer.open(&handle)) {
                    self.fail("answer: the second process could not open");
                }
                self.blocks[at] = Some(Block { lent: true, ..block });
            }
            _ => return false,
        }
        true
    }
}
