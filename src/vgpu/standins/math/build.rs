//! Gives the library a name, and keeps it loaded.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libvgpu_math.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
