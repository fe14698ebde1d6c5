//! `vgpu-bench`: what one pair of `cuMemAlloc` and `cuMemFree` costs, as JSON lines.

fn main() {
    if std::env::args().nth(1).is_some_and(|a| a == "--help" || a == "-h") {
        println!(
            "Measures cuMemAlloc + cuMemFree on the loaded libcuda.so.1 with 10 to 100 000 blocks alive, in\n\
             one and in two threads, and prints a JSON line a case.\n\nusage: vgpu-bench [--quick]"
        );
        return;
    }
    weir_tests::bench::run(std::env::args().any(|a| a == "--quick"));
}
