; What TensorFlow's and XLA's compilers look for as libdevice.10.bc: the mathematical functions of the
; documented libdevice interface, by name. LLVM reads this text as it reads bitcode. Kernels compute nothing on
; the virtual GPU, so each function here gives its first argument back; only names and types matter.

define float @__nv_acosf(float %a) #0 { ret float %a }
define double @__nv_acos(double %a) #0 { ret double %a }
define float @__nv_acoshf(float %a) #0 { ret float %a }
define double @__nv_acosh(double %a) #0 { ret double %a }
define float @__nv_asinf(float %a) #0 { ret float %a }
define double @__nv_asin(double %a) #0 { ret double %a }
define float @__nv_asinhf(float %a) #0 { ret float %a }
define double @__nv_asinh(double %a) #0 { ret double %a }
define float @__nv_atanf(float %a) #0 { ret float %a }
define double @__nv_atan(double %a) #0 { ret double %a }
define float @__nv_atanhf(float %a) #0 { ret float %a }
define double @__nv_atanh(double %a) #0 { ret double %a }
define float @__nv_cbrtf(float %a) #0 { ret float %a }
define double @__nv_cbrt(double %a) #0 { ret double %a }
define float @__nv_ceilf(float %a) #0 { ret float %a }
define double @__nv_ceil(double %a) #0 { ret double %a }
define float @__nv_cosf(float %a) #0 { ret float %a }
define double @__nv_cos(double %a) #0 { ret double %a }
define float @__nv_coshf(float %a) #0 { ret float %a }
define double @__nv_cosh(double %a) #0 { ret double %a }
define float @__nv_erff(float %a) #0 { ret float %a }
define double @__nv_erf(double %a) #0 { ret double %a }
define float @__nv_erfcf(float %a) #0 { ret float %a }
define double @__nv_erfc(double %a) #0 { ret double %a }
define float @__nv_erfcinvf(float %a) #0 { ret float %a }
define double @__nv_erfcinv(double %a) #0 { ret double %a }
define float @__nv_erfinvf(float %a) #0 { ret float %a }
define double @__nv_erfinv(double %a) #0 { ret double %a }
define float @__nv_expf(float %a) #0 { ret float %a }
define double @__nv_exp(double %a) #0 { ret double %a }
define float @__nv_exp10f(float %a) #0 { ret float %a }
define double @__nv_exp10(double %a) #0 { ret double %a }
define float @__nv_exp2f(float %a) #0 { ret float %a }
define double @__nv_exp2(double %a) #0 { ret double %a }
define float @__nv_expm1f(float %a) #0 { ret float %a }
define double @__nv_expm1(double %a) #0 { ret double %a }
define float @__nv_fabsf(float %a) #0 { ret float %a }
define double @__nv_fabs(double %a) #0 { ret double %a }
define float @__nv_floorf(float %a) #0 { ret float %a }
define double @__nv_floor(double %a) #0 { ret double %a }
define float @__nv_j0f(float %a) #0 { ret float %a }
define double @__nv_j0(double %a) #0 { ret double %a }
define float @__nv_j1f(float %a) #0 { ret float %a }
define double @__nv_j1(double %a) #0 { ret double %a }
define float @__nv_lgammaf(float %a) #0 { ret float %a }
define double @__nv_lgamma(double %a) #0 { ret double %a }
define float @__nv_logf(float %a) #0 { ret float %a }
define double @__nv_log(double %a) #0 { ret double %a }
define float @__nv_log10f(float %a) #0 { ret float %a }
define double @__nv_log10(double %a) #0 { ret double %a }
define float @__nv_log1pf(float %a) #0 { ret float %a }
define double @__nv_log1p(double %a) #0 { ret double %a }
define float @__nv_log2f(float %a) #0 { ret float %a }
define double @__nv_log2(double %a) #0 { ret double %a }
define float @__nv_logbf(float %a) #0 { ret float %a }
define double @__nv_logb(double %a) #0 { ret double %a }
define float @__nv_nearbyintf(float %a) #0 { ret float %a }
define double @__nv_nearbyint(double %a) #0 { ret double %a }
define float @__nv_rintf(float %a) #0 { ret float %a }
define double @__nv_rint(double %a) #0 { ret double %a }
define float @__nv_roundf(float %a) #0 { ret float %a }
define double @__nv_round(double %a) #0 { ret double %a }
define float @__nv_rsqrtf(float %a) #0 { ret float %a }
define double @__nv_rsqrt(double %a) #0 { ret double %a }
define float @__nv_sinf(float %a) #0 { ret float %a }
define double @__nv_sin(double %a) #0 { ret double %a }
define float @__nv_sinhf(float %a) #0 { ret float %a }
define double @__nv_sinh(double %a) #0 { ret double %a }
define float @__nv_sqrtf(float %a) #0 { ret float %a }
define double @__nv_sqrt(double %a) #0 { ret double %a }
define float @__nv_tanf(float %a) #0 { ret float %a }
define double @__nv_tan(double %a) #0 { ret double %a }
define float @__nv_tanhf(float %a) #0 { ret float %a }
define double @__nv_tanh(double %a) #0 { ret double %a }
define float @__nv_tgammaf(float %a) #0 { ret float %a }
define double @__nv_tgamma(double %a) #0 { ret double %a }
define float @__nv_truncf(float %a) #0 { ret float %a }
define double @__nv_trunc(double %a) #0 { ret double %a }
define float @__nv_y0f(float %a) #0 { ret float %a }
define double @__nv_y0(double %a) #0 { ret double %a }
define float @__nv_y1f(float %a) #0 { ret float %a }
define double @__nv_y1(double %a) #0 { ret double %a }
define float @__nv_normcdff(float %a) #0 { ret float %a }
define double @__nv_normcdf(double %a) #0 { ret double %a }
define float @__nv_normcdfinvf(float %a) #0 { ret float %a }
define double @__nv_normcdfinv(double %a) #0 { ret double %a }
define float @__nv_cospif(float %a) #0 { ret float %a }
define double @__nv_cospi(double %a) #0 { ret double %a }
define float @__nv_sinpif(float %a) #0 { ret float %a }
define double @__nv_sinpi(double %a) #0 { ret double %a }
define float @__nv_atan2f(float %a, float %b) #0 { ret float %a }
define double @__nv_atan2(double %a, double %b) #0 { ret double %a }
define float @__nv_copysignf(float %a, float %b) #0 { ret float %a }
define double @__nv_copysign(double %a, double %b) #0 { ret double %a }
define float @__nv_fdimf(float %a, float %b) #0 { ret float %a }
define double @__nv_fdim(double %a, double %b) #0 { ret double %a }
define float @__nv_fmaxf(float %a, float %b) #0 { ret float %a }
define double @__nv_fmax(double %a, double %b) #0 { ret double %a }
define float @__nv_fminf(float %a, float %b) #0 { ret float %a }
define double @__nv_fmin(double %a, double %b) #0 { ret double %a }
define float @__nv_fmodf(float %a, float %b) #0 { ret float %a }
define double @__nv_fmod(double %a, double %b) #0 { ret double %a }
define float @__nv_hypotf(float %a, float %b) #0 { ret float %a }
define double @__nv_hypot(double %a, double %b) #0 { ret double %a }
define float @__nv_powf(float %a, float %b) #0 { ret float %a }
define double @__nv_pow(double %a, double %b) #0 { ret double %a }
define float @__nv_remainderf(float %a, float %b) #0 { ret float %a }
define double @__nv_remainder(double %a, double %b) #0 { ret double %a }
define float @__nv_nextafterf(float %a, float %b) #0 { ret float %a }
define double @__nv_nextafter(double %a, double %b) #0 { ret double %a }
define float @__nv_fmaf(float %a, float %b, float %c) #0 { ret float %a }
define double @__nv_fma(double %a, double %b, double %c) #0 { ret double %a }
define float @__nv_fast_cosf(float %a) #0 { ret float %a }
define float @__nv_fast_sinf(float %a) #0 { ret float %a }
define float @__nv_fast_tanf(float %a) #0 { ret float %a }
define float @__nv_fast_expf(float %a) #0 { ret float %a }
define float @__nv_fast_exp10f(float %a) #0 { ret float %a }
define float @__nv_fast_logf(float %a) #0 { ret float %a }
define float @__nv_fast_log2f(float %a) #0 { ret float %a }
define float @__nv_fast_log10f(float %a) #0 { ret float %a }
define float @__nv_fast_powf(float %a, float %b) #0 { ret float %a }
define float @__nv_fast_fdividef(float %a, float %b) #0 { ret float %a }
define float @__nv_saturatef(float %a) #0 { ret float %a }
define float @__nv_powif(float %a, i32 %b) #0 { ret float %a }
define double @__nv_powi(double %a, i32 %b) #0 { ret double %a }
define float @__nv_ldexpf(float %a, i32 %b) #0 { ret float %a }
define double @__nv_ldexp(double %a, i32 %b) #0 { ret double %a }
define float @__nv_scalbnf(float %a, i32 %b) #0 { ret float %a }
define double @__nv_scalbn(double %a, i32 %b) #0 { ret double %a }
define i32 @__nv_isnanf(float %a) #0 { ret i32 0 }
define i32 @__nv_isnand(double %a) #0 { ret i32 0 }
define i32 @__nv_isinff(float %a) #0 { ret i32 0 }
define i32 @__nv_isinfd(double %a) #0 { ret i32 0 }
define i32 @__nv_finitef(float %a) #0 { ret i32 0 }
define i32 @__nv_isfinited(double %a) #0 { ret i32 0 }
define i32 @__nv_signbitf(float %a) #0 { ret i32 0 }
define i32 @__nv_signbitd(double %a) #0 { ret i32 0 }
define i32 @__nv_abs(i32 %a) #0 { ret i32 %a }
define i64 @__nv_llabs(i64 %a) #0 { ret i64 %a }
define i32 @__nv_min(i32 %a, i32 %b) #0 { ret i32 %a }
define i32 @__nv_max(i32 %a, i32 %b) #0 { ret i32 %a }
define i32 @__nv_umin(i32 %a, i32 %b) #0 { ret i32 %a }
define i32 @__nv_umax(i32 %a, i32 %b) #0 { ret i32 %a }
define i64 @__nv_llmin(i64 %a, i64 %b) #0 { ret i64 %a }
define i64 @__nv_llmax(i64 %a, i64 %b) #0 { ret i64 %a }
define i32 @__nv_clz(i32 %a) #0 { ret i32 0 }
define i32 @__nv_clzll(i64 %a) #0 { ret i32 0 }
define i32 @__nv_popc(i32 %a) #0 { ret i32 0 }
define i32 @__nv_popcll(i64 %a) #0 { ret i32 0 }
define i32 @__nv_ffs(i32 %a) #0 { ret i32 0 }
define i32 @__nv_ffsll(i64 %a) #0 { ret i32 0 }

attributes #0 = { alwaysinline nounwind }
