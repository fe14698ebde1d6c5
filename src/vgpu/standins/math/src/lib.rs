//! The virtual GPU's stand-ins for cuBLAS, cuBLASLt, cuDNN, cuFFT, cuSOLVER, cuSPARSE, NCCL and CUPTI: one
//! library under several names. It computes nothing. It keeps what callers read back (handles, settings,
//! descriptors), takes the device memory that the real libraries take for themselves, and returns the sizes
//! of workspaces that callers then take.
//!
//! Most functions only answer success and come from a list (`listed`); the others have a body by library.
//! Only interfaces of public headers are here. Sizes that no document gives are a model, each said where
//! it is made.

#![allow(non_snake_case, clippy::too_many_arguments)]

#[macro_use]
mod answers;

mod cublas;
mod cublaslt;
mod cudnn;
mod cufft;
mod cupti;
mod cusolver;
mod cusparse;
mod device;
mod listed;
mod nccl;
mod nccl_sum;
