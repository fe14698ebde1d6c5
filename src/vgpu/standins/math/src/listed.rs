// Made by src/vgpu/standins/list-functions; do not edit by hand.
//! The 2086 functions without a body of their own, by what they must write.

create! {
    cublasLtMatrixTransformDescCreate()
    cublasXtCreate()
    cudnnCreateActivationDescriptor()
    cudnnCreateAlgorithmDescriptor()
    cudnnCreateAlgorithmPerformance()
    cudnnCreateAttnDescriptor()
    cudnnCreateCTCLossDescriptor()
    cudnnCreateDropoutDescriptor()
    cudnnCreateFusedOpsConstParamPack()
    cudnnCreateFusedOpsPlan()
    cudnnCreateFusedOpsVariantParamPack()
    cudnnCreateLRNDescriptor()
    cudnnCreateOpTensorDescriptor()
    cudnnCreatePoolingDescriptor()
    cudnnCreateReduceTensorDescriptor()
    cudnnCreateSeqDataDescriptor()
    cudnnCreateSpatialTransformerDescriptor()
    cudnnCreateTensorTransformDescriptor()
    cuptiSubscribe()
    cusolverDnCreate()
    cusolverDnCreateGesvdjInfo()
    cusolverDnCreateParams()
    cusolverDnCreateSyevjInfo()
    cusolverDnIRSInfosCreate()
    cusolverDnIRSParamsCreate()
    cusolverRfCreate()
    cusolverSpCreate()
    cusolverSpCreateCsrcholInfo()
    cusolverSpCreateCsrcholInfoHost()
    cusolverSpCreateCsrluInfoHost()
    cusolverSpCreateCsrqrInfo()
    cusolverSpCreateCsrqrInfoHost()
    cusparseCreate()
    cusparseCreateBlockedEll()
    cusparseCreateBsr()
    cusparseCreateBsric02Info()
    cusparseCreateBsrilu02Info()
    cusparseCreateBsrsm2Info()
    cusparseCreateBsrsv2Info()
    cusparseCreateColorInfo()
    cusparseCreateConstBlockedEll()
    cusparseCreateConstBsr()
    cusparseCreateConstCoo()
    cusparseCreateConstCsc()
    cusparseCreateConstCsr()
    cusparseCreateConstDnMat()
    cusparseCreateConstDnVec()
    cusparseCreateConstSlicedEll()
    cusparseCreateConstSpVec()
    cusparseCreateCoo()
    cusparseCreateCsc()
    cusparseCreateCsr()
    cusparseCreateCsric02Info()
    cusparseCreateCsrilu02Info()
    cusparseCreateCsru2csrInfo()
    cusparseCreateDnMat()
    cusparseCreateDnVec()
    cusparseCreateMatDescr()
    cusparseCreatePruneInfo()
    cusparseCreateSlicedEll()
    cusparseCreateSpVec()
    cusparseSpGEMM_createDescr()
    cusparseSpSM_createDescr()
    cusparseSpSV_createDescr()
    ncclRedOpCreatePreMulSum()
}

size32! {
    cusolverDnCgebrd_bufferSize(a b c)
    cusolverDnCgeqrf_bufferSize(a b c d e)
    cusolverDnCgesvd_bufferSize(a b c)
    cusolverDnCgesvdaStridedBatched_bufferSize(a b c d e f g h i j k l m n o p)
    cusolverDnCgesvdjBatched_bufferSize(a b c d e f g h i j k)
    cusolverDnCgesvdj_bufferSize(a b c d e f g h i j k l)
    cusolverDnCgetrf_bufferSize(a b c d e)
    cusolverDnCheevd_bufferSize(a b c d e f g)
    cusolverDnCheevdx_bufferSize(a b c d e f g h i j k)
    cusolverDnCheevjBatched_bufferSize(a b c d e f g)
    cusolverDnCheevj_bufferSize(a b c d e f g)
    cusolverDnChegvd_bufferSize(a b c d e f g h i j)
    cusolverDnChegvdx_bufferSize(a b c d e f g h i j k l m n)
    cusolverDnChegvj_bufferSize(a b c d e f g h i j)
    cusolverDnChetrd_bufferSize(a b c d e f g h)
    cusolverDnClauum_bufferSize(a b c d e)
    cusolverDnCpotrf_bufferSize(a b c d e)
    cusolverDnCpotri_bufferSize(a b c d e)
    cusolverDnCsytrf_bufferSize(a b c d)
    cusolverDnCsytri_bufferSize(a b c d e f)
    cusolverDnCungbr_bufferSize(a b c d e f g h)
    cusolverDnCungqr_bufferSize(a b c d e f g)
    cusolverDnCungtr_bufferSize(a b c d e f)
    cusolverDnCunmqr_bufferSize(a b c d e f g h i j k)
    cusolverDnCunmtr_bufferSize(a b c d e f g h i j k)
    cusolverDnDgebrd_bufferSize(a b c)
    cusolverDnDgeqrf_bufferSize(a b c d e)
    cusolverDnDgesvd_bufferSize(a b c)
    cusolverDnDgesvdaStridedBatched_bufferSize(a b c d e f g h i j k l m n o p)
    cusolverDnDgesvdjBatched_bufferSize(a b c d e f g h i j k)
    cusolverDnDgesvdj_bufferSize(a b c d e f g h i j k l)
    cusolverDnDgetrf_bufferSize(a b c d e)
    cusolverDnDlauum_bufferSize(a b c d e)
    cusolverDnDorgbr_bufferSize(a b c d e f g h)
    cusolverDnDorgqr_bufferSize(a b c d e f g)
    cusolverDnDorgtr_bufferSize(a b c d e f)
    cusolverDnDormqr_bufferSize(a b c d e f g h i j k)
    cusolverDnDormtr_bufferSize(a b c d e f g h i j k)
    cusolverDnDpotrf_bufferSize(a b c d e)
    cusolverDnDpotri_bufferSize(a b c d e)
    cusolverDnDsyevd_bufferSize(a b c d e f g)
    cusolverDnDsyevdx_bufferSize(a b c d e f g h i j k)
    cusolverDnDsyevjBatched_bufferSize(a b c d e f g)
    cusolverDnDsyevj_bufferSize(a b c d e f g)
    cusolverDnDsygvd_bufferSize(a b c d e f g h i j)
    cusolverDnDsygvdx_bufferSize(a b c d e f g h i j k l m n)
    cusolverDnDsygvj_bufferSize(a b c d e f g h i j)
    cusolverDnDsytrd_bufferSize(a b c d e f g h)
    cusolverDnDsytrf_bufferSize(a b c d)
    cusolverDnDsytri_bufferSize(a b c d e f)
    cusolverDnSgebrd_bufferSize(a b c)
    cusolverDnSgeqrf_bufferSize(a b c d e)
    cusolverDnSgesvd_bufferSize(a b c)
    cusolverDnSgesvdaStridedBatched_bufferSize(a b c d e f g h i j k l m n o p)
    cusolverDnSgesvdjBatched_bufferSize(a b c d e f g h i j k)
    cusolverDnSgesvdj_bufferSize(a b c d e f g h i j k l)
    cusolverDnSgetrf_bufferSize(a b c d e)
    cusolverDnSlauum_bufferSize(a b c d e)
    cusolverDnSorgbr_bufferSize(a b c d e f g h)
    cusolverDnSorgqr_bufferSize(a b c d e f g)
    cusolverDnSorgtr_bufferSize(a b c d e f)
    cusolverDnSormqr_bufferSize(a b c d e f g h i j k)
    cusolverDnSormtr_bufferSize(a b c d e f g h i j k)
    cusolverDnSpotrf_bufferSize(a b c d e)
    cusolverDnSpotri_bufferSize(a b c d e)
    cusolverDnSsyevd_bufferSize(a b c d e f g)
    cusolverDnSsyevdx_bufferSize(a b c d e f g h i j k)
    cusolverDnSsyevjBatched_bufferSize(a b c d e f g)
    cusolverDnSsyevj_bufferSize(a b c d e f g)
    cusolverDnSsygvd_bufferSize(a b c d e f g h i j)
    cusolverDnSsygvdx_bufferSize(a b c d e f g h i j k l m n)
    cusolverDnSsygvj_bufferSize(a b c d e f g h i j)
    cusolverDnSsytrd_bufferSize(a b c d e f g h)
    cusolverDnSsytrf_bufferSize(a b c d)
    cusolverDnSsytri_bufferSize(a b c d e f)
    cusolverDnZgebrd_bufferSize(a b c)
    cusolverDnZgeqrf_bufferSize(a b c d e)
    cusolverDnZgesvd_bufferSize(a b c)
    cusolverDnZgesvdaStridedBatched_bufferSize(a b c d e f g h i j k l m n o p)
    cusolverDnZgesvdjBatched_bufferSize(a b c d e f g h i j k)
    cusolverDnZgesvdj_bufferSize(a b c d e f g h i j k l)
    cusolverDnZgetrf_bufferSize(a b c d e)
    cusolverDnZheevd_bufferSize(a b c d e f g)
    cusolverDnZheevdx_bufferSize(a b c d e f g h i j k)
    cusolverDnZheevjBatched_bufferSize(a b c d e f g)
    cusolverDnZheevj_bufferSize(a b c d e f g)
    cusolverDnZhegvd_bufferSize(a b c d e f g h i j)
    cusolverDnZhegvdx_bufferSize(a b c d e f g h i j k l m n)
    cusolverDnZhegvj_bufferSize(a b c d e f g h i j)
    cusolverDnZhetrd_bufferSize(a b c d e f g h)
    cusolverDnZlauum_bufferSize(a b c d e)
    cusolverDnZpotrf_bufferSize(a b c d e)
    cusolverDnZpotri_bufferSize(a b c d e)
    cusolverDnZsytrf_bufferSize(a b c d)
    cusolverDnZsytri_bufferSize(a b c d e f)
    cusolverDnZungbr_bufferSize(a b c d e f g h)
    cusolverDnZungqr_bufferSize(a b c d e f g)
    cusolverDnZungtr_bufferSize(a b c d e f)
    cusolverDnZunmqr_bufferSize(a b c d e f g h i j k)
    cusolverDnZunmtr_bufferSize(a b c d e f g h i j k)
    cusparseCbsric02_bufferSize(a b c d e f g h i j)
    cusparseCbsrilu02_bufferSize(a b c d e f g h i j)
    cusparseCbsrsm2_bufferSize(a b c d e f g h i j k l m)
    cusparseCbsrsv2_bufferSize(a b c d e f g h i j k)
    cusparseCcsr2gebsr_bufferSize(a b c d e f g h i j)
    cusparseCcsric02_bufferSize(a b c d e f g h)
    cusparseCcsrilu02_bufferSize(a b c d e f g h)
    cusparseCgebsr2gebsc_bufferSize(a b c d e f g h i)
    cusparseCgebsr2gebsr_bufferSize(a b c d e f g h i j k l m)
    cusparseCgemvi_bufferSize(a b c d e)
    cusparseDbsric02_bufferSize(a b c d e f g h i j)
    cusparseDbsrilu02_bufferSize(a b c d e f g h i j)
    cusparseDbsrsm2_bufferSize(a b c d e f g h i j k l m)
    cusparseDbsrsv2_bufferSize(a b c d e f g h i j k)
    cusparseDcsr2gebsr_bufferSize(a b c d e f g h i j)
    cusparseDcsric02_bufferSize(a b c d e f g h)
    cusparseDcsrilu02_bufferSize(a b c d e f g h)
    cusparseDgebsr2gebsc_bufferSize(a b c d e f g h i)
    cusparseDgebsr2gebsr_bufferSize(a b c d e f g h i j k l m)
    cusparseDgemvi_bufferSize(a b c d e)
    cusparseSbsric02_bufferSize(a b c d e f g h i j)
    cusparseSbsrilu02_bufferSize(a b c d e f g h i j)
    cusparseSbsrsm2_bufferSize(a b c d e f g h i j k l m)
    cusparseSbsrsv2_bufferSize(a b c d e f g h i j k)
    cusparseScsr2gebsr_bufferSize(a b c d e f g h i j)
    cusparseScsric02_bufferSize(a b c d e f g h)
    cusparseScsrilu02_bufferSize(a b c d e f g h)
    cusparseSgebsr2gebsc_bufferSize(a b c d e f g h i)
    cusparseSgebsr2gebsr_bufferSize(a b c d e f g h i j k l m)
    cusparseSgemvi_bufferSize(a b c d e)
    cusparseZbsric02_bufferSize(a b c d e f g h i j)
    cusparseZbsrilu02_bufferSize(a b c d e f g h i j)
    cusparseZbsrsm2_bufferSize(a b c d e f g h i j k l m)
    cusparseZbsrsv2_bufferSize(a b c d e f g h i j k)
    cusparseZcsr2gebsr_bufferSize(a b c d e f g h i j)
    cusparseZcsric02_bufferSize(a b c d e f g h)
    cusparseZcsrilu02_bufferSize(a b c d e f g h)
    cusparseZgebsr2gebsc_bufferSize(a b c d e f g h i)
    cusparseZgebsr2gebsr_bufferSize(a b c d e f g h i j k l m)
    cusparseZgemvi_bufferSize(a b c d e)
}

size64! {
    cudnnGetCTCLossWorkspaceSize(a b c d e f g h)
    cudnnGetCTCLossWorkspaceSize_v8(a b c d e)
    cudnnGetConvolutionBackwardDataWorkspaceSize(a b c d e f)
    cudnnGetConvolutionBackwardFilterWorkspaceSize(a b c d e f)
    cudnnGetConvolutionForwardWorkspaceSize(a b c d e f)
    cudnnGetNormalizationBackwardWorkspaceSize(a b c d e f g h i j k l)
    cudnnGetNormalizationForwardTrainingWorkspaceSize(a b c d e f g h i j)
    cudnnGetReductionWorkspaceSize(a b c d)
    cusolverDnCCgels_bufferSize(a b c d e f g h i j k)
    cusolverDnCCgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnCEgels_bufferSize(a b c d e f g h i j k)
    cusolverDnCEgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnCKgels_bufferSize(a b c d e f g h i j k)
    cusolverDnCKgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnCYgels_bufferSize(a b c d e f g h i j k)
    cusolverDnCYgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnDBgels_bufferSize(a b c d e f g h i j k)
    cusolverDnDBgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnDDgels_bufferSize(a b c d e f g h i j k)
    cusolverDnDDgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnDHgels_bufferSize(a b c d e f g h i j k)
    cusolverDnDHgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnDSgels_bufferSize(a b c d e f g h i j k)
    cusolverDnDSgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnDXgels_bufferSize(a b c d e f g h i j k)
    cusolverDnDXgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnGeqrf_bufferSize(a b c d e f g h i j)
    cusolverDnGesvd_bufferSize(a b c d e f g h i j k l m n o p q r)
    cusolverDnGetrf_bufferSize(a b c d e f g h)
    cusolverDnIRSXgels_bufferSize(a b c d e)
    cusolverDnIRSXgesv_bufferSize(a b c d)
    cusolverDnPotrf_bufferSize(a b c d e f g h)
    cusolverDnSBgels_bufferSize(a b c d e f g h i j k)
    cusolverDnSBgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnSHgels_bufferSize(a b c d e f g h i j k)
    cusolverDnSHgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnSSgels_bufferSize(a b c d e f g h i j k)
    cusolverDnSSgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnSXgels_bufferSize(a b c d e f g h i j k)
    cusolverDnSXgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnSyevd_bufferSize(a b c d e f g h i j k)
    cusolverDnSyevdx_bufferSize(a b c d e f g h i j k l m n o p q)
    cusolverDnZCgels_bufferSize(a b c d e f g h i j k)
    cusolverDnZCgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnZEgels_bufferSize(a b c d e f g h i j k)
    cusolverDnZEgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnZKgels_bufferSize(a b c d e f g h i j k)
    cusolverDnZKgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnZYgels_bufferSize(a b c d e f g h i j k)
    cusolverDnZYgesv_bufferSize(a b c d e f g h i j k)
    cusolverDnZZgels_bufferSize(a b c d e f g h i j k)
    cusolverDnZZgesv_bufferSize(a b c d e f g h i j k)
    cusolverSpXcsrperm_bufferSizeHost(a b c d e f g h i)
    cusparseCcsrgeam2_bufferSizeExt(a b c d e f g h i j k l m n o p q r s)
    cusparseCcsru2csr_bufferSizeExt(a b c d e f g h)
    cusparseCgpsvInterleavedBatch_bufferSizeExt(a b c d e f g h i j)
    cusparseCgtsv2StridedBatch_bufferSizeExt(a b c d e f g h)
    cusparseCgtsv2_bufferSizeExt(a b c d e f g h)
    cusparseCgtsv2_nopivot_bufferSizeExt(a b c d e f g h)
    cusparseCgtsvInterleavedBatch_bufferSizeExt(a b c d e f g h)
    cusparseCsr2cscEx2_bufferSize(a b c d e f g h i j k l m n)
    cusparseDcsrgeam2_bufferSizeExt(a b c d e f g h i j k l m n o p q r s)
    cusparseDcsru2csr_bufferSizeExt(a b c d e f g h)
    cusparseDenseToSparse_bufferSize(a b c d)
    cusparseDgpsvInterleavedBatch_bufferSizeExt(a b c d e f g h i j)
    cusparseDgtsv2StridedBatch_bufferSizeExt(a b c d e f g h)
    cusparseDgtsv2_bufferSizeExt(a b c d e f g h)
    cusparseDgtsv2_nopivot_bufferSizeExt(a b c d e f g h)
    cusparseDgtsvInterleavedBatch_bufferSizeExt(a b c d e f g h)
    cusparseDpruneCsr2csrByPercentage_bufferSizeExt(a b c d e f g h i j k l m)
    cusparseDpruneCsr2csr_bufferSizeExt(a b c d e f g h i j k l m)
    cusparseDpruneDense2csrByPercentage_bufferSizeExt(a b c d e f g h i j)
    cusparseDpruneDense2csr_bufferSizeExt(a b c d e f g h i j)
    cusparseHpruneCsr2csrByPercentage_bufferSizeExt(a b c d e f g h i j k l m)
    cusparseHpruneCsr2csr_bufferSizeExt(a b c d e f g h i j k l m)
    cusparseHpruneDense2csrByPercentage_bufferSizeExt(a b c d e f g h i j)
    cusparseHpruneDense2csr_bufferSizeExt(a b c d e f g h i j)
    cusparseSDDMM_bufferSize(a b c d e f g h i j)
    cusparseScsrgeam2_bufferSizeExt(a b c d e f g h i j k l m n o p q r s)
    cusparseScsru2csr_bufferSizeExt(a b c d e f g h)
    cusparseSgpsvInterleavedBatch_bufferSizeExt(a b c d e f g h i j)
    cusparseSgtsv2StridedBatch_bufferSizeExt(a b c d e f g h)
    cusparseSgtsv2_bufferSizeExt(a b c d e f g h)
    cusparseSgtsv2_nopivot_bufferSizeExt(a b c d e f g h)
    cusparseSgtsvInterleavedBatch_bufferSizeExt(a b c d e f g h)
    cusparseSpGEMM_compute(a b c d e f g h i j k)
    cusparseSpGEMM_workEstimation(a b c d e f g h i j k)
    cusparseSpGEMMreuse_workEstimation(a b c d e f g h)
    cusparseSpMM_bufferSize(a b c d e f g h i j)
    cusparseSpMV_bufferSize(a b c d e f g h i)
    cusparseSpSM_bufferSize(a b c d e f g h i j)
    cusparseSpSV_bufferSize(a b c d e f g h i)
    cusparseSpVV_bufferSize(a b c d e f)
    cusparseSparseToDense_bufferSize(a b c d)
    cusparseSpruneCsr2csrByPercentage_bufferSizeExt(a b c d e f g h i j k l m)
    cusparseSpruneCsr2csr_bufferSizeExt(a b c d e f g h i j k l m)
    cusparseSpruneDense2csrByPercentage_bufferSizeExt(a b c d e f g h i j)
    cusparseSpruneDense2csr_bufferSizeExt(a b c d e f g h i j)
    cusparseXcoosort_bufferSizeExt(a b c d e f)
    cusparseXcscsort_bufferSizeExt(a b c d e f)
    cusparseXcsrsort_bufferSizeExt(a b c d e f)
    cusparseZcsrgeam2_bufferSizeExt(a b c d e f g h i j k l m n o p q r s)
    cusparseZcsru2csr_bufferSizeExt(a b c d e f g h)
    cusparseZgpsvInterleavedBatch_bufferSizeExt(a b c d e f g h i j)
    cusparseZgtsv2StridedBatch_bufferSizeExt(a b c d e f g h)
    cusparseZgtsv2_bufferSizeExt(a b c d e f g h)
    cusparseZgtsv2_nopivot_bufferSizeExt(a b c d e f g h)
    cusparseZgtsvInterleavedBatch_bufferSizeExt(a b c d e f g h)
}

sizes! {
    cusolverDnXgeqrf_bufferSize(a b c d e f g h i j)
    cusolverDnXgesvd_bufferSize(a b c d e f g h i j k l m n o p q r)
    cusolverDnXgesvdp_bufferSize(a b c d e f g h i j k l m n o p q r)
    cusolverDnXgesvdr_bufferSize(a b c d e f g h i j k l m n o p q r s t u)
    cusolverDnXgetrf_bufferSize(a b c d e f g h)
    cusolverDnXpotrf_bufferSize(a b c d e f g h)
    cusolverDnXsyevd_bufferSize(a b c d e f g h i j k)
    cusolverDnXsyevdx_bufferSize(a b c d e f g h i j k l m n o p q)
    cusolverDnXsytrs_bufferSize(a b c d e f g h i j k)
    cusolverDnXtrtri_bufferSize(a b c d e f g)
}

succeed! {
    cublasGetError
    cublasGetLoggerCallback
    cublasGetMatrix
    cublasGetMatrixAsync
    cublasGetMatrixAsync_64
    cublasGetMatrix_64
    cublasGetVector
    cublasGetVectorAsync
    cublasGetVectorAsync_64
    cublasGetVector_64
    cublasGetVersion
    cublasInit
    cublasLoggerConfigure
    cublasLtDestroy
    cublasLtHeuristicsCacheGetCapacity
    cublasLtHeuristicsCacheSetCapacity
    cublasLtLoggerForceDisable
    cublasLtLoggerOpenFile
    cublasLtLoggerSetCallback
    cublasLtLoggerSetFile
    cublasLtLoggerSetLevel
    cublasLtLoggerSetMask
    cublasLtMatmulAlgoCapGetAttribute
    cublasLtMatmulAlgoCheck
    cublasLtMatmulAlgoConfigGetAttribute
    cublasLtMatmulAlgoConfigSetAttribute
    cublasLtMatmulAlgoGetIds
    cublasLtMatmulAlgoInit
    cublasLtMatmulDescInit_internal
    cublasLtMatmulPreferenceInit_internal
    cublasLtMatrixLayoutInit_internal
    cublasLtMatrixTransformDescDestroy
    cublasLtMatrixTransformDescGetAttribute
    cublasLtMatrixTransformDescInit_internal
    cublasLtMatrixTransformDescSetAttribute
    cublasSetKernelStream
    cublasSetLoggerCallback
    cublasSetMatrix
    cublasSetMatrixAsync
    cublasSetMatrixAsync_64
    cublasSetMatrix_64
    cublasSetVector
    cublasSetVectorAsync
    cublasSetVectorAsync_64
    cublasSetVector_64
    cublasSetWorkspace_v2
    cublasXerbla
    cublasXtCgemm
    cublasXtChemm
    cublasXtCher2k
    cublasXtCherk
    cublasXtCherkx
    cublasXtCspmm
    cublasXtCsymm
    cublasXtCsyr2k
    cublasXtCsyrk
    cublasXtCsyrkx
    cublasXtCtrmm
    cublasXtCtrsm
    cublasXtDestroy
    cublasXtDeviceSelect
    cublasXtDgemm
    cublasXtDspmm
    cublasXtDsymm
    cublasXtDsyr2k
    cublasXtDsyrk
    cublasXtDsyrkx
    cublasXtDtrmm
    cublasXtDtrsm
    cublasXtGetBlockDim
    cublasXtGetNumBoards
    cublasXtGetPinningMemMode
    cublasXtMaxBoards
    cublasXtSetBlockDim
    cublasXtSetCpuRatio
    cublasXtSetCpuRoutine
    cublasXtSetPinningMemMode
    cublasXtSgemm
    cublasXtSspmm
    cublasXtSsymm
    cublasXtSsyr2k
    cublasXtSsyrk
    cublasXtSsyrkx
    cublasXtStrmm
    cublasXtStrsm
    cublasXtZgemm
    cublasXtZhemm
    cublasXtZher2k
    cublasXtZherk
    cublasXtZherkx
    cublasXtZspmm
    cublasXtZsymm
    cublasXtZsyr2k
    cublasXtZsyrk
    cublasXtZsyrkx
    cublasXtZtrmm
    cublasXtZtrsm
    cudnnAdvInferVersionCheck
    cudnnAdvTrainVersionCheck
    cudnnAdvVersionCheck
    cudnnBuildRNNDynamic
    cudnnCnnInferVersionCheck
    cudnnCnnTrainVersionCheck
    cudnnCnnVersionCheck
    cudnnCopyAlgorithmDescriptor
    cudnnDeriveBNTensorDescriptor
    cudnnDeriveNormTensorDescriptor
    cudnnDestroyActivationDescriptor
    cudnnDestroyAlgorithmDescriptor
    cudnnDestroyAlgorithmPerformance
    cudnnDestroyAttnDescriptor
    cudnnDestroyCTCLossDescriptor
    cudnnDestroyDropoutDescriptor
    cudnnDestroyFusedOpsConstParamPack
    cudnnDestroyFusedOpsPlan
    cudnnDestroyFusedOpsVariantParamPack
    cudnnDestroyLRNDescriptor
    cudnnDestroyOpTensorDescriptor
    cudnnDestroyPersistentRNNPlan
    cudnnDestroyPoolingDescriptor
    cudnnDestroyReduceTensorDescriptor
    cudnnDestroySeqDataDescriptor
    cudnnDestroySpatialTransformerDescriptor
    cudnnDestroyTensorTransformDescriptor
    cudnnFindConvolutionBackwardDataAlgorithm
    cudnnFindConvolutionBackwardDataAlgorithmEx
    cudnnFindConvolutionBackwardFilterAlgorithm
    cudnnFindConvolutionBackwardFilterAlgorithmEx
    cudnnFindConvolutionForwardAlgorithm
    cudnnFindConvolutionForwardAlgorithmEx
    cudnnFindRNNBackwardDataAlgorithmEx
    cudnnFindRNNBackwardWeightsAlgorithmEx
    cudnnFindRNNForwardInferenceAlgorithmEx
    cudnnFindRNNForwardTrainingAlgorithmEx
    cudnnGetActivationDescriptor
    cudnnGetActivationDescriptorSwishBeta
    cudnnGetAlgorithmDescriptor
    cudnnGetAlgorithmPerformance
    cudnnGetAlgorithmSpaceSize
    cudnnGetAttnDescriptor
    cudnnGetCTCLossDescriptor
    cudnnGetCTCLossDescriptorEx
    cudnnGetCTCLossDescriptor_v8
    cudnnGetCallback
    cudnnGetConvolution2dDescriptor
    cudnnGetConvolution2dForwardOutputDim
    cudnnGetConvolutionBackwardDataAlgorithm_v7
    cudnnGetConvolutionBackwardFilterAlgorithm_v7
    cudnnGetConvolutionForwardAlgorithm_v7
    cudnnGetConvolutionGroupCount
    cudnnGetConvolutionMathType
    cudnnGetConvolutionNdDescriptor
    cudnnGetConvolutionReorderType
    cudnnGetDropoutDescriptor
    cudnnGetFilter4dDescriptor
    cudnnGetFilterSizeInBytes
    cudnnGetFoldedConvBackwardDataDescriptors
    cudnnGetFusedOpsConstParamPackAttribute
    cudnnGetFusedOpsVariantParamPackAttribute
    cudnnGetLRNDescriptor
    cudnnGetMaxDeviceVersion
    cudnnGetMultiHeadAttnBuffers
    cudnnGetMultiHeadAttnWeights
    cudnnGetNormalizationTrainingReserveSpaceSize
    cudnnGetOpTensorDescriptor
    cudnnGetPooling2dDescriptor
    cudnnGetPooling2dForwardOutputDim
    cudnnGetPoolingNdDescriptor
    cudnnGetPoolingNdForwardOutputDim
    cudnnGetRNNBackwardDataAlgorithmMaxCount
    cudnnGetRNNBackwardWeightsAlgorithmMaxCount
    cudnnGetRNNBiasMode
    cudnnGetRNNForwardInferenceAlgorithmMaxCount
    cudnnGetRNNForwardTrainingAlgorithmMaxCount
    cudnnGetRNNMatrixMathType
    cudnnGetRNNPaddingMode
    cudnnGetReduceTensorDescriptor
    cudnnGetReductionIndicesSize
    cudnnGetSeqDataDescriptor
    cudnnGetTensorTransformDescriptor
    cudnnGraphVersionCheck
    cudnnInitTransformDest
    cudnnMakeFusedOpsPlan
    cudnnOpsInferVersionCheck
    cudnnOpsTrainVersionCheck
    cudnnOpsVersionCheck
    cudnnQueryRuntimeError
    cudnnRNNGetClip
    cudnnRNNGetClip_v8
    cudnnRNNSetClip
    cudnnRNNSetClip_v8
    cudnnRestoreAlgorithm
    cudnnRestoreDropoutDescriptor
    cudnnSaveAlgorithm
    cudnnSetActivationDescriptor
    cudnnSetActivationDescriptorSwishBeta
    cudnnSetAlgorithmDescriptor
    cudnnSetAlgorithmPerformance
    cudnnSetAttnDescriptor
    cudnnSetCTCLossDescriptor
    cudnnSetCTCLossDescriptorEx
    cudnnSetCTCLossDescriptor_v8
    cudnnSetCallback
    cudnnSetConvolution2dDescriptor
    cudnnSetConvolutionGroupCount
    cudnnSetConvolutionMathType
    cudnnSetConvolutionReorderType
    cudnnSetDropoutDescriptor
    cudnnSetFilter4dDescriptor
    cudnnSetFusedOpsConstParamPackAttribute
    cudnnSetFusedOpsVariantParamPackAttribute
    cudnnSetLRNDescriptor
    cudnnSetOpTensorDescriptor
    cudnnSetPersistentRNNPlan
    cudnnSetPooling2dDescriptor
    cudnnSetPoolingNdDescriptor
    cudnnSetRNNAlgorithmDescriptor
    cudnnSetRNNBiasMode
    cudnnSetRNNDescriptor_v6
    cudnnSetRNNMatrixMathType
    cudnnSetRNNPaddingMode
    cudnnSetRNNProjectionLayers
    cudnnSetReduceTensorDescriptor
    cudnnSetSeqDataDescriptor
    cudnnSetSpatialTransformerNdDescriptor
    cudnnSetTensorTransformDescriptor
    cufftDestroy
    cufftEstimate1d
    cufftEstimate2d
    cufftEstimate3d
    cufftEstimateMany
    cufftGetSize
    cufftGetSize1d
    cufftGetSize2d
    cufftGetSize3d
    cufftGetSizeMany
    cufftGetSizeMany64
    cufftSetAutoAllocation
    cufftSetWorkArea
    cufftXtClearCallback
    cufftXtFree
    cufftXtGetSizeMany
    cufftXtMakePlanMany
    cufftXtMalloc
    cufftXtMemcpy
    cufftXtQueryPlan
    cufftXtSetCallback
    cufftXtSetCallbackSharedSize
    cufftXtSetGPUs
    cufftXtSetWorkArea
    cufftXtSetWorkAreaPolicy
    cuptiActivityConfigurePCSampling
    cuptiActivityConfigureUnifiedMemoryCounter
    cuptiActivityDisable
    cuptiActivityDisableContext
    cuptiActivityEnable
    cuptiActivityEnableAndDump
    cuptiActivityEnableContext
    cuptiActivityEnableLatencyTimestamps
    cuptiActivityEnableLaunchAttributes
    cuptiActivityFlush
    cuptiActivityFlushAll
    cuptiActivityFlushPeriod
    cuptiActivityGetAttribute
    cuptiActivityPopExternalCorrelationId
    cuptiActivityPushExternalCorrelationId
    cuptiActivityRegisterCallbacks
    cuptiActivityRegisterTimestampCallback
    cuptiActivitySetAttribute
    cuptiComputeCapabilitySupported
    cuptiDeviceEnumEventDomains
    cuptiDeviceEnumMetrics
    cuptiDeviceGetAttribute
    cuptiDeviceGetChipName
    cuptiDeviceGetEventDomainAttribute
    cuptiDeviceGetNumEventDomains
    cuptiDeviceGetNumMetrics
    cuptiDeviceSupported
    cuptiDeviceVirtualizationMode
    cuptiDisableKernelReplayMode
    cuptiEnableAllDomains
    cuptiEnableCallback
    cuptiEnableDomain
    cuptiEnableKernelReplayMode
    cuptiEnumEventDomains
    cuptiEnumMetrics
    cuptiEventDomainEnumEvents
    cuptiEventDomainGetAttribute
    cuptiEventDomainGetNumEvents
    cuptiEventGetAttribute
    cuptiEventGetIdFromName
    cuptiEventGroupAddEvent
    cuptiEventGroupCreate
    cuptiEventGroupDestroy
    cuptiEventGroupDisable
    cuptiEventGroupEnable
    cuptiEventGroupGetAttribute
    cuptiEventGroupReadAllEvents
    cuptiEventGroupReadEvent
    cuptiEventGroupRemoveAllEvents
    cuptiEventGroupRemoveEvent
    cuptiEventGroupResetAllEvents
    cuptiEventGroupSetAttribute
    cuptiEventGroupSetDisable
    cuptiEventGroupSetEnable
    cuptiEventGroupSetsCreate
    cuptiEventGroupSetsDestroy
    cuptiFinalize
    cuptiGetAutoBoostState
    cuptiGetCallbackName
    cuptiGetCallbackState
    cuptiGetCubinCrc
    cuptiGetLastError
    cuptiGetNumEventDomains
    cuptiGetNumMetrics
    cuptiGetSassToSourceCorrelation
    cuptiGetStreamId
    cuptiGetThreadIdType
    cuptiKernelReplaySubscribeUpdate
    cuptiMetricCreateEventGroupSets
    cuptiMetricEnumEvents
    cuptiMetricEnumProperties
    cuptiMetricGetAttribute
    cuptiMetricGetIdFromName
    cuptiMetricGetNumEvents
    cuptiMetricGetNumProperties
    cuptiMetricGetRequiredEventGroupSets
    cuptiMetricGetValue
    cuptiMetricGetValue2
    cuptiOpenACCInitialize
    cuptiOpenMpInitialize
    cuptiOpenMpInitialize_v2
    cuptiPCSamplingDisable
    cuptiPCSamplingEnable
    cuptiPCSamplingGetConfigurationAttribute
    cuptiPCSamplingGetData
    cuptiPCSamplingGetNumStallReasons
    cuptiPCSamplingGetStallReasons
    cuptiPCSamplingSetConfigurationAttribute
    cuptiPCSamplingStart
    cuptiPCSamplingStop
    cuptiProfilerBeginPass
    cuptiProfilerBeginSession
    cuptiProfilerCounterDataImageCalculateScratchBufferSize
    cuptiProfilerCounterDataImageCalculateSize
    cuptiProfilerCounterDataImageInitialize
    cuptiProfilerCounterDataImageInitializeScratchBuffer
    cuptiProfilerDeInitialize
    cuptiProfilerDeviceSupported
    cuptiProfilerDisableProfiling
    cuptiProfilerEnableProfiling
    cuptiProfilerEndPass
    cuptiProfilerEndSession
    cuptiProfilerFlushCounterData
    cuptiProfilerGetCounterAvailability
    cuptiProfilerInitialize
    cuptiProfilerIsPassCollected
    cuptiProfilerPopRange
    cuptiProfilerPushRange
    cuptiProfilerSetConfig
    cuptiProfilerUnsetConfig
    cuptiRegisterComputeCrcCallback
    cuptiSassMetricsDisable
    cuptiSassMetricsEnable
    cuptiSassMetricsFlushData
    cuptiSassMetricsGetDataProperties
    cuptiSassMetricsGetMetrics
    cuptiSassMetricsGetNumOfMetrics
    cuptiSassMetricsGetProperties
    cuptiSassMetricsSetConfig
    cuptiSassMetricsUnsetConfig
    cuptiSetEventCollectionMode
    cuptiSetThreadIdType
    cuptiSupportedDomains
    cuptiUnsubscribe
    cusolverDnDestroyGesvdjInfo
    cusolverDnDestroyParams
    cusolverDnDestroySyevjInfo
    cusolverDnGetDeterministicMode
    cusolverDnGetStream
    cusolverDnIRSInfosDestroy
    cusolverDnIRSInfosGetMaxIters
    cusolverDnIRSInfosGetNiters
    cusolverDnIRSInfosGetOuterNiters
    cusolverDnIRSInfosGetResidualHistory
    cusolverDnIRSInfosRequestResidual
    cusolverDnIRSParamsDestroy
    cusolverDnIRSParamsDisableFallback
    cusolverDnIRSParamsEnableFallback
    cusolverDnIRSParamsGetMaxIters
    cusolverDnIRSParamsSetMaxIters
    cusolverDnIRSParamsSetMaxItersInner
    cusolverDnIRSParamsSetRefinementSolver
    cusolverDnIRSParamsSetSolverLowestPrecision
    cusolverDnIRSParamsSetSolverMainPrecision
    cusolverDnIRSParamsSetSolverPrecisions
    cusolverDnIRSParamsSetTol
    cusolverDnIRSParamsSetTolInner
    cusolverDnSetAdvOptions
    cusolverDnSetDeterministicMode
    cusolverDnXgesvdjGetResidual
    cusolverDnXgesvdjGetSweeps
    cusolverDnXgesvdjSetMaxSweeps
    cusolverDnXgesvdjSetSortEig
    cusolverDnXgesvdjSetTolerance
    cusolverDnXsyevjGetResidual
    cusolverDnXsyevjGetSweeps
    cusolverDnXsyevjSetMaxSweeps
    cusolverDnXsyevjSetSortEig
    cusolverDnXsyevjSetTolerance
    cusolverRfBatchSetupHost
    cusolverRfDestroy
    cusolverRfGetAlgs
    cusolverRfGetMatrixFormat
    cusolverRfGetNumericBoostReport
    cusolverRfGetNumericProperties
    cusolverRfGetResetValuesFastMode
    cusolverRfSetAlgs
    cusolverRfSetMatrixFormat
    cusolverRfSetNumericProperties
    cusolverRfSetResetValuesFastMode
    cusolverRfSetupDevice
    cusolverRfSetupHost
    cusolverSpCcsrcholBufferInfo
    cusolverSpCcsrcholBufferInfoHost
    cusolverSpCcsrluBufferInfoHost
    cusolverSpCcsrqrBufferInfo
    cusolverSpCcsrqrBufferInfoBatched
    cusolverSpCcsrqrBufferInfoHost
    cusolverSpCcsrqrSetup
    cusolverSpCcsrqrSetupHost
    cusolverSpDcsrcholBufferInfo
    cusolverSpDcsrcholBufferInfoHost
    cusolverSpDcsrluBufferInfoHost
    cusolverSpDcsrqrBufferInfo
    cusolverSpDcsrqrBufferInfoBatched
    cusolverSpDcsrqrBufferInfoHost
    cusolverSpDcsrqrSetup
    cusolverSpDcsrqrSetupHost
    cusolverSpDestroyCsrcholInfo
    cusolverSpDestroyCsrcholInfoHost
    cusolverSpDestroyCsrluInfoHost
    cusolverSpDestroyCsrqrInfo
    cusolverSpDestroyCsrqrInfoHost
    cusolverSpGetStream
    cusolverSpScsrcholBufferInfo
    cusolverSpScsrcholBufferInfoHost
    cusolverSpScsrluBufferInfoHost
    cusolverSpScsrqrBufferInfo
    cusolverSpScsrqrBufferInfoBatched
    cusolverSpScsrqrBufferInfoHost
    cusolverSpScsrqrSetup
    cusolverSpScsrqrSetupHost
    cusolverSpZcsrcholBufferInfo
    cusolverSpZcsrcholBufferInfoHost
    cusolverSpZcsrluBufferInfoHost
    cusolverSpZcsrqrBufferInfo
    cusolverSpZcsrqrBufferInfoBatched
    cusolverSpZcsrqrBufferInfoHost
    cusolverSpZcsrqrSetup
    cusolverSpZcsrqrSetupHost
    cusparseBlockedEllGet
    cusparseBsrSetStridedBatch
    cusparseCbsrilu02_numericBoost
    cusparseCcsrilu02_numericBoost
    cusparseConstBlockedEllGet
    cusparseConstCooGet
    cusparseConstCscGet
    cusparseConstCsrGet
    cusparseConstDnMatGet
    cusparseConstDnMatGetValues
    cusparseConstDnVecGet
    cusparseConstDnVecGetValues
    cusparseConstSpMatGetValues
    cusparseConstSpVecGet
    cusparseConstSpVecGetValues
    cusparseCooGet
    cusparseCooSetPointers
    cusparseCooSetStridedBatch
    cusparseCreateIdentityPermutation
    cusparseCscGet
    cusparseCscSetPointers
    cusparseCsrGet
    cusparseCsrSetPointers
    cusparseCsrSetStridedBatch
    cusparseDbsrilu02_numericBoost
    cusparseDcsrilu02_numericBoost
    cusparseDestroyBsric02Info
    cusparseDestroyBsrilu02Info
    cusparseDestroyBsrsm2Info
    cusparseDestroyBsrsv2Info
    cusparseDestroyColorInfo
    cusparseDestroyCsric02Info
    cusparseDestroyCsrilu02Info
    cusparseDestroyCsru2csrInfo
    cusparseDestroyDnMat
    cusparseDestroyDnVec
    cusparseDestroyMatDescr
    cusparseDestroyPruneInfo
    cusparseDestroySpMat
    cusparseDestroySpVec
    cusparseDnMatGet
    cusparseDnMatGetStridedBatch
    cusparseDnMatGetValues
    cusparseDnMatSetStridedBatch
    cusparseDnMatSetValues
    cusparseDnVecGet
    cusparseDnVecGetValues
    cusparseDnVecSetValues
    cusparseGetMatDiagType
    cusparseGetMatFillMode
    cusparseGetMatIndexBase
    cusparseGetMatType
    cusparseGetPointerMode
    cusparseGetStream
    cusparseLoggerForceDisable
    cusparseLoggerOpenFile
    cusparseLoggerSetCallback
    cusparseLoggerSetFile
    cusparseLoggerSetLevel
    cusparseLoggerSetMask
    cusparseSDDMM_preprocess
    cusparseSbsrilu02_numericBoost
    cusparseScsrilu02_numericBoost
    cusparseSetMatDiagType
    cusparseSetMatFillMode
    cusparseSetMatIndexBase
    cusparseSetMatType
    cusparseSetPointerMode
    cusparseSpGEMM_destroyDescr
    cusparseSpGEMM_estimateMemory
    cusparseSpGEMM_getNumProducts
    cusparseSpMMOp_createPlan
    cusparseSpMMOp_destroyPlan
    cusparseSpMM_preprocess
    cusparseSpMatGetAttribute
    cusparseSpMatGetFormat
    cusparseSpMatGetIndexBase
    cusparseSpMatGetStridedBatch
    cusparseSpMatGetValues
    cusparseSpMatSetAttribute
    cusparseSpMatSetValues
    cusparseSpSM_destroyDescr
    cusparseSpSV_destroyDescr
    cusparseSpVecGet
    cusparseSpVecGetIndexBase
    cusparseSpVecGetValues
    cusparseSpVecSetValues
    cusparseXbsric02_zeroPivot
    cusparseXbsrilu02_zeroPivot
    cusparseXbsrsm2_zeroPivot
    cusparseXbsrsv2_zeroPivot
    cusparseXcsric02_zeroPivot
    cusparseXcsrilu02_zeroPivot
    cusparseZbsrilu02_numericBoost
    cusparseZcsrilu02_numericBoost
    ncclCommDeregister
    ncclCommFinalize
    ncclGroupEnd
    ncclGroupStart
    ncclRedOpDestroy
}

works! {
    cublasAlloc
    cublasAsumEx
    cublasAsumEx_64
    cublasAxpyEx
    cublasAxpyEx_64
    cublasCaxpy
    cublasCaxpy_v2
    cublasCaxpy_v2_64
    cublasCcopy
    cublasCcopy_v2
    cublasCcopy_v2_64
    cublasCdgmm
    cublasCdgmm_64
    cublasCdotc
    cublasCdotc_v2
    cublasCdotc_v2_64
    cublasCdotu
    cublasCdotu_v2
    cublasCdotu_v2_64
    cublasCgbmv
    cublasCgbmv_v2
    cublasCgbmv_v2_64
    cublasCgeam
    cublasCgeam_64
    cublasCgelsBatched
    cublasCgemm
    cublasCgemm3m
    cublasCgemm3mBatched
    cublasCgemm3mBatched_64
    cublasCgemm3mEx
    cublasCgemm3mEx_64
    cublasCgemm3mStridedBatched
    cublasCgemm3mStridedBatched_64
    cublasCgemm3m_64
    cublasCgemmBatched_64
    cublasCgemmEx
    cublasCgemmEx_64
    cublasCgemmStridedBatched_64
    cublasCgemm_v2_64
    cublasCgemv
    cublasCgemvBatched
    cublasCgemvBatched_64
    cublasCgemvStridedBatched
    cublasCgemvStridedBatched_64
    cublasCgemv_v2
    cublasCgemv_v2_64
    cublasCgeqrfBatched
    cublasCgerc
    cublasCgerc_v2
    cublasCgerc_v2_64
    cublasCgeru
    cublasCgeru_v2
    cublasCgeru_v2_64
    cublasCgetrfBatched
    cublasCgetriBatched
    cublasCgetrsBatched
    cublasChbmv
    cublasChbmv_v2
    cublasChbmv_v2_64
    cublasChemm
    cublasChemm_v2
    cublasChemm_v2_64
    cublasChemv
    cublasChemv_v2
    cublasChemv_v2_64
    cublasCher
    cublasCher2
    cublasCher2_v2
    cublasCher2_v2_64
    cublasCher2k
    cublasCher2k_v2
    cublasCher2k_v2_64
    cublasCher_v2
    cublasCher_v2_64
    cublasCherk
    cublasCherk3mEx
    cublasCherk3mEx_64
    cublasCherkEx
    cublasCherkEx_64
    cublasCherk_v2
    cublasCherk_v2_64
    cublasCherkx
    cublasCherkx_64
    cublasChpmv
    cublasChpmv_v2
    cublasChpmv_v2_64
    cublasChpr
    cublasChpr2
    cublasChpr2_v2
    cublasChpr2_v2_64
    cublasChpr_v2
    cublasChpr_v2_64
    cublasCmatinvBatched
    cublasCopyEx
    cublasCopyEx_64
    cublasCrot
    cublasCrot_v2
    cublasCrot_v2_64
    cublasCrotg
    cublasCrotg_v2
    cublasCscal
    cublasCscal_v2
    cublasCscal_v2_64
    cublasCsrot
    cublasCsrot_v2
    cublasCsrot_v2_64
    cublasCsscal
    cublasCsscal_v2
    cublasCsscal_v2_64
    cublasCswap
    cublasCswap_v2
    cublasCswap_v2_64
    cublasCsymm
    cublasCsymm_v2
    cublasCsymm_v2_64
    cublasCsymv_v2
    cublasCsymv_v2_64
    cublasCsyr2_v2
    cublasCsyr2_v2_64
    cublasCsyr2k
    cublasCsyr2k_v2
    cublasCsyr2k_v2_64
    cublasCsyr_v2
    cublasCsyr_v2_64
    cublasCsyrk
    cublasCsyrk3mEx
    cublasCsyrk3mEx_64
    cublasCsyrkEx
    cublasCsyrkEx_64
    cublasCsyrk_v2
    cublasCsyrk_v2_64
    cublasCsyrkx
    cublasCsyrkx_64
    cublasCtbmv
    cublasCtbmv_v2
    cublasCtbmv_v2_64
    cublasCtbsv
    cublasCtbsv_v2
    cublasCtbsv_v2_64
    cublasCtpmv
    cublasCtpmv_v2
    cublasCtpmv_v2_64
    cublasCtpsv
    cublasCtpsv_v2
    cublasCtpsv_v2_64
    cublasCtpttr
    cublasCtrmm
    cublasCtrmm_v2
    cublasCtrmm_v2_64
    cublasCtrmv
    cublasCtrmv_v2
    cublasCtrmv_v2_64
    cublasCtrsm
    cublasCtrsmBatched
    cublasCtrsmBatched_64
    cublasCtrsm_v2
    cublasCtrsm_v2_64
    cublasCtrsv
    cublasCtrsv_v2
    cublasCtrsv_v2_64
    cublasCtrttp
    cublasDasum
    cublasDasum_v2
    cublasDasum_v2_64
    cublasDaxpy
    cublasDaxpy_v2
    cublasDaxpy_v2_64
    cublasDcopy
    cublasDcopy_v2
    cublasDcopy_v2_64
    cublasDdgmm
    cublasDdgmm_64
    cublasDdot
    cublasDdot_v2
    cublasDdot_v2_64
    cublasDgbmv
    cublasDgbmv_v2
    cublasDgbmv_v2_64
    cublasDgeam
    cublasDgeam_64
    cublasDgelsBatched
    cublasDgemm
    cublasDgemmBatched_64
    cublasDgemmStridedBatched_64
    cublasDgemm_v2_64
    cublasDgemv
    cublasDgemvBatched
    cublasDgemvBatched_64
    cublasDgemvStridedBatched
    cublasDgemvStridedBatched_64
    cublasDgemv_v2
    cublasDgemv_v2_64
    cublasDgeqrfBatched
    cublasDger
    cublasDger_v2
    cublasDger_v2_64
    cublasDgetrfBatched
    cublasDgetriBatched
    cublasDgetrsBatched
    cublasDmatinvBatched
    cublasDnrm2
    cublasDnrm2_v2
    cublasDnrm2_v2_64
    cublasDotEx
    cublasDotEx_64
    cublasDotcEx
    cublasDotcEx_64
    cublasDrot
    cublasDrot_v2
    cublasDrot_v2_64
    cublasDrotg
    cublasDrotg_v2
    cublasDrotm
    cublasDrotm_v2
    cublasDrotm_v2_64
    cublasDrotmg
    cublasDrotmg_v2
    cublasDsbmv
    cublasDsbmv_v2
    cublasDsbmv_v2_64
    cublasDscal
    cublasDscal_v2
    cublasDscal_v2_64
    cublasDspmv
    cublasDspmv_v2
    cublasDspmv_v2_64
    cublasDspr
    cublasDspr2
    cublasDspr2_v2
    cublasDspr2_v2_64
    cublasDspr_v2
    cublasDspr_v2_64
    cublasDswap
    cublasDswap_v2
    cublasDswap_v2_64
    cublasDsymm
    cublasDsymm_v2
    cublasDsymm_v2_64
    cublasDsymv
    cublasDsymv_v2
    cublasDsymv_v2_64
    cublasDsyr
    cublasDsyr2
    cublasDsyr2_v2
    cublasDsyr2_v2_64
    cublasDsyr2k
    cublasDsyr2k_v2
    cublasDsyr2k_v2_64
    cublasDsyr_v2
    cublasDsyr_v2_64
    cublasDsyrk
    cublasDsyrk_v2
    cublasDsyrk_v2_64
    cublasDsyrkx
    cublasDsyrkx_64
    cublasDtbmv
    cublasDtbmv_v2
    cublasDtbmv_v2_64
    cublasDtbsv
    cublasDtbsv_v2
    cublasDtbsv_v2_64
    cublasDtpmv
    cublasDtpmv_v2
    cublasDtpmv_v2_64
    cublasDtpsv
    cublasDtpsv_v2
    cublasDtpsv_v2_64
    cublasDtpttr
    cublasDtrmm
    cublasDtrmm_v2
    cublasDtrmm_v2_64
    cublasDtrmv
    cublasDtrmv_v2
    cublasDtrmv_v2_64
    cublasDtrsm
    cublasDtrsmBatched
    cublasDtrsmBatched_64
    cublasDtrsm_v2
    cublasDtrsm_v2_64
    cublasDtrsv
    cublasDtrsv_v2
    cublasDtrsv_v2_64
    cublasDtrttp
    cublasDzasum
    cublasDzasum_v2
    cublasDzasum_v2_64
    cublasDznrm2
    cublasDznrm2_v2
    cublasDznrm2_v2_64
    cublasFree
    cublasGemmBatchedEx_64
    cublasGemmEx_64
    cublasGemmStridedBatchedEx_64
    cublasHSHgemvBatched
    cublasHSHgemvBatched_64
    cublasHSHgemvStridedBatched
    cublasHSHgemvStridedBatched_64
    cublasHSSgemvBatched
    cublasHSSgemvBatched_64
    cublasHSSgemvStridedBatched
    cublasHSSgemvStridedBatched_64
    cublasHgemm
    cublasHgemmBatched
    cublasHgemmBatched_64
    cublasHgemmStridedBatched
    cublasHgemmStridedBatched_64
    cublasHgemm_64
    cublasIamaxEx
    cublasIamaxEx_64
    cublasIaminEx
    cublasIaminEx_64
    cublasIcamax
    cublasIcamax_v2
    cublasIcamax_v2_64
    cublasIcamin
    cublasIcamin_v2
    cublasIcamin_v2_64
    cublasIdamax
    cublasIdamax_v2
    cublasIdamax_v2_64
    cublasIdamin
    cublasIdamin_v2
    cublasIdamin_v2_64
    cublasIsamax
    cublasIsamax_v2
    cublasIsamax_v2_64
    cublasIsamin
    cublasIsamin_v2
    cublasIsamin_v2_64
    cublasIzamax
    cublasIzamax_v2
    cublasIzamax_v2_64
    cublasIzamin
    cublasIzamin_v2
    cublasIzamin_v2_64
    cublasNrm2Ex
    cublasNrm2Ex_64
    cublasRotEx
    cublasRotEx_64
    cublasRotgEx
    cublasRotmEx
    cublasRotmEx_64
    cublasRotmgEx
    cublasSasum
    cublasSasum_v2
    cublasSasum_v2_64
    cublasSaxpy
    cublasSaxpy_v2
    cublasSaxpy_v2_64
    cublasScalEx
    cublasScalEx_64
    cublasScasum
    cublasScasum_v2
    cublasScasum_v2_64
    cublasScnrm2
    cublasScnrm2_v2
    cublasScnrm2_v2_64
    cublasScopy
    cublasScopy_v2
    cublasScopy_v2_64
    cublasSdgmm
    cublasSdgmm_64
    cublasSdot
    cublasSdot_v2
    cublasSdot_v2_64
    cublasSgbmv
    cublasSgbmv_v2
    cublasSgbmv_v2_64
    cublasSgeam
    cublasSgeam_64
    cublasSgelsBatched
    cublasSgemm
    cublasSgemmBatched_64
    cublasSgemmEx_64
    cublasSgemmStridedBatched_64
    cublasSgemm_v2_64
    cublasSgemv
    cublasSgemvBatched
    cublasSgemvBatched_64
    cublasSgemvStridedBatched
    cublasSgemvStridedBatched_64
    cublasSgemv_v2
    cublasSgemv_v2_64
    cublasSgeqrfBatched
    cublasSger
    cublasSger_v2
    cublasSger_v2_64
    cublasSgetrfBatched
    cublasSgetriBatched
    cublasSgetrsBatched
    cublasShutdown
    cublasSmatinvBatched
    cublasSnrm2
    cublasSnrm2_v2
    cublasSnrm2_v2_64
    cublasSrot
    cublasSrot_v2
    cublasSrot_v2_64
    cublasSrotg
    cublasSrotg_v2
    cublasSrotm
    cublasSrotm_v2
    cublasSrotm_v2_64
    cublasSrotmg
    cublasSrotmg_v2
    cublasSsbmv
    cublasSsbmv_v2
    cublasSsbmv_v2_64
    cublasSscal
    cublasSscal_v2
    cublasSscal_v2_64
    cublasSspmv
    cublasSspmv_v2
    cublasSspmv_v2_64
    cublasSspr
    cublasSspr2
    cublasSspr2_v2
    cublasSspr2_v2_64
    cublasSspr_v2
    cublasSspr_v2_64
    cublasSswap
    cublasSswap_v2
    cublasSswap_v2_64
    cublasSsymm
    cublasSsymm_v2
    cublasSsymm_v2_64
    cublasSsymv
    cublasSsymv_v2
    cublasSsymv_v2_64
    cublasSsyr
    cublasSsyr2
    cublasSsyr2_v2
    cublasSsyr2_v2_64
    cublasSsyr2k
    cublasSsyr2k_v2
    cublasSsyr2k_v2_64
    cublasSsyr_v2
    cublasSsyr_v2_64
    cublasSsyrk
    cublasSsyrk_v2
    cublasSsyrk_v2_64
    cublasSsyrkx
    cublasSsyrkx_64
    cublasStbmv
    cublasStbmv_v2
    cublasStbmv_v2_64
    cublasStbsv
    cublasStbsv_v2
    cublasStbsv_v2_64
    cublasStpmv
    cublasStpmv_v2
    cublasStpmv_v2_64
    cublasStpsv
    cublasStpsv_v2
    cublasStpsv_v2_64
    cublasStpttr
    cublasStrmm
    cublasStrmm_v2
    cublasStrmm_v2_64
    cublasStrmv
    cublasStrmv_v2
    cublasStrmv_v2_64
    cublasStrsm
    cublasStrsmBatched
    cublasStrsmBatched_64
    cublasStrsm_v2
    cublasStrsm_v2_64
    cublasStrsv
    cublasStrsv_v2
    cublasStrsv_v2_64
    cublasStrttp
    cublasSwapEx
    cublasSwapEx_64
    cublasTSSgemvBatched
    cublasTSSgemvBatched_64
    cublasTSSgemvStridedBatched
    cublasTSSgemvStridedBatched_64
    cublasTSTgemvBatched
    cublasTSTgemvBatched_64
    cublasTSTgemvStridedBatched
    cublasTSTgemvStridedBatched_64
    cublasUint8gemmBias
    cublasZaxpy
    cublasZaxpy_v2
    cublasZaxpy_v2_64
    cublasZcopy
    cublasZcopy_v2
    cublasZcopy_v2_64
    cublasZdgmm
    cublasZdgmm_64
    cublasZdotc
    cublasZdotc_v2
    cublasZdotc_v2_64
    cublasZdotu
    cublasZdotu_v2
    cublasZdotu_v2_64
    cublasZdrot
    cublasZdrot_v2
    cublasZdrot_v2_64
    cublasZdscal
    cublasZdscal_v2
    cublasZdscal_v2_64
    cublasZgbmv
    cublasZgbmv_v2
    cublasZgbmv_v2_64
    cublasZgeam
    cublasZgeam_64
    cublasZgelsBatched
    cublasZgemm
    cublasZgemm3m
    cublasZgemm3m_64
    cublasZgemmBatched_64
    cublasZgemmStridedBatched_64
    cublasZgemm_v2_64
    cublasZgemv
    cublasZgemvBatched
    cublasZgemvBatched_64
    cublasZgemvStridedBatched
    cublasZgemvStridedBatched_64
    cublasZgemv_v2
    cublasZgemv_v2_64
    cublasZgeqrfBatched
    cublasZgerc
    cublasZgerc_v2
    cublasZgerc_v2_64
    cublasZgeru
    cublasZgeru_v2
    cublasZgeru_v2_64
    cublasZgetrfBatched
    cublasZgetriBatched
    cublasZgetrsBatched
    cublasZhbmv
    cublasZhbmv_v2
    cublasZhbmv_v2_64
    cublasZhemm
    cublasZhemm_v2
    cublasZhemm_v2_64
    cublasZhemv
    cublasZhemv_v2
    cublasZhemv_v2_64
    cublasZher
    cublasZher2
    cublasZher2_v2
    cublasZher2_v2_64
    cublasZher2k
    cublasZher2k_v2
    cublasZher2k_v2_64
    cublasZher_v2
    cublasZher_v2_64
    cublasZherk
    cublasZherk_v2
    cublasZherk_v2_64
    cublasZherkx
    cublasZherkx_64
    cublasZhpmv
    cublasZhpmv_v2
    cublasZhpmv_v2_64
    cublasZhpr
    cublasZhpr2
    cublasZhpr2_v2
    cublasZhpr2_v2_64
    cublasZhpr_v2
    cublasZhpr_v2_64
    cublasZmatinvBatched
    cublasZrot
    cublasZrot_v2
    cublasZrot_v2_64
    cublasZrotg
    cublasZrotg_v2
    cublasZscal
    cublasZscal_v2
    cublasZscal_v2_64
    cublasZswap
    cublasZswap_v2
    cublasZswap_v2_64
    cublasZsymm
    cublasZsymm_v2
    cublasZsymm_v2_64
    cublasZsymv_v2
    cublasZsymv_v2_64
    cublasZsyr2_v2
    cublasZsyr2_v2_64
    cublasZsyr2k
    cublasZsyr2k_v2
    cublasZsyr2k_v2_64
    cublasZsyr_v2
    cublasZsyr_v2_64
    cublasZsyrk
    cublasZsyrk_v2
    cublasZsyrk_v2_64
    cublasZsyrkx
    cublasZsyrkx_64
    cublasZtbmv
    cublasZtbmv_v2
    cublasZtbmv_v2_64
    cublasZtbsv
    cublasZtbsv_v2
    cublasZtbsv_v2_64
    cublasZtpmv
    cublasZtpmv_v2
    cublasZtpmv_v2_64
    cublasZtpsv
    cublasZtpsv_v2
    cublasZtpsv_v2_64
    cublasZtpttr
    cublasZtrmm
    cublasZtrmm_v2
    cublasZtrmm_v2_64
    cublasZtrmv
    cublasZtrmv_v2
    cublasZtrmv_v2_64
    cublasZtrsm
    cublasZtrsmBatched
    cublasZtrsmBatched_64
    cublasZtrsm_v2
    cublasZtrsm_v2_64
    cublasZtrsv
    cublasZtrsv_v2
    cublasZtrsv_v2_64
    cublasZtrttp
    cudnnActivationBackward
    cudnnActivationForward
    cudnnAddTensor
    cudnnBackendExecute
    cudnnBatchNormalizationBackward
    cudnnBatchNormalizationBackwardEx
    cudnnBatchNormalizationForwardInference
    cudnnBatchNormalizationForwardTraining
    cudnnBatchNormalizationForwardTrainingEx
    cudnnCTCLoss
    cudnnCTCLoss_v8
    cudnnConvolutionBackwardBias
    cudnnConvolutionBackwardData
    cudnnConvolutionBackwardFilter
    cudnnConvolutionBiasActivationForward
    cudnnConvolutionForward
    cudnnDivisiveNormalizationBackward
    cudnnDivisiveNormalizationForward
    cudnnDropoutBackward
    cudnnDropoutForward
    cudnnFusedOpsExecute
    cudnnIm2Col
    cudnnLRNCrossChannelBackward
    cudnnLRNCrossChannelForward
    cudnnMultiHeadAttnBackwardData
    cudnnMultiHeadAttnBackwardWeights
    cudnnMultiHeadAttnForward
    cudnnNormalizationBackward
    cudnnNormalizationForwardInference
    cudnnNormalizationForwardTraining
    cudnnOpTensor
    cudnnPoolingBackward
    cudnnPoolingForward
    cudnnRNNBackwardData
    cudnnRNNBackwardDataEx
    cudnnRNNBackwardData_v8
    cudnnRNNBackwardWeights
    cudnnRNNBackwardWeightsEx
    cudnnRNNBackwardWeights_v8
    cudnnRNNForward
    cudnnRNNForwardInference
    cudnnRNNForwardInferenceEx
    cudnnRNNForwardTraining
    cudnnRNNForwardTrainingEx
    cudnnReduceTensor
    cudnnReorderFilterAndBias
    cudnnScaleTensor
    cudnnSetTensor
    cudnnSoftmaxBackward
    cudnnSoftmaxForward
    cudnnSpatialTfGridGeneratorBackward
    cudnnSpatialTfGridGeneratorForward
    cudnnSpatialTfSamplerBackward
    cudnnSpatialTfSamplerForward
    cudnnTransformFilter
    cudnnTransformTensor
    cudnnTransformTensorEx
    cusolverDnCCgels
    cusolverDnCCgesv
    cusolverDnCEgels
    cusolverDnCEgesv
    cusolverDnCKgels
    cusolverDnCKgesv
    cusolverDnCYgels
    cusolverDnCYgesv
    cusolverDnCgebrd
    cusolverDnCgeqrf
    cusolverDnCgesvd
    cusolverDnCgesvdaStridedBatched
    cusolverDnCgesvdj
    cusolverDnCgesvdjBatched
    cusolverDnCgetrf
    cusolverDnCgetrs
    cusolverDnCheevd
    cusolverDnCheevdx
    cusolverDnCheevj
    cusolverDnCheevjBatched
    cusolverDnChegvd
    cusolverDnChegvdx
    cusolverDnChegvj
    cusolverDnChetrd
    cusolverDnClaswp
    cusolverDnClauum
    cusolverDnCpotrf
    cusolverDnCpotrfBatched
    cusolverDnCpotri
    cusolverDnCpotrs
    cusolverDnCpotrsBatched
    cusolverDnCsytrf
    cusolverDnCsytri
    cusolverDnCungbr
    cusolverDnCungqr
    cusolverDnCungtr
    cusolverDnCunmqr
    cusolverDnCunmtr
    cusolverDnDBgels
    cusolverDnDBgesv
    cusolverDnDDgels
    cusolverDnDDgesv
    cusolverDnDHgels
    cusolverDnDHgesv
    cusolverDnDSgels
    cusolverDnDSgesv
    cusolverDnDXgels
    cusolverDnDXgesv
    cusolverDnDgebrd
    cusolverDnDgeqrf
    cusolverDnDgesvd
    cusolverDnDgesvdaStridedBatched
    cusolverDnDgesvdj
    cusolverDnDgesvdjBatched
    cusolverDnDgetrf
    cusolverDnDgetrs
    cusolverDnDlaswp
    cusolverDnDlauum
    cusolverDnDorgbr
    cusolverDnDorgqr
    cusolverDnDorgtr
    cusolverDnDormqr
    cusolverDnDormtr
    cusolverDnDpotrf
    cusolverDnDpotrfBatched
    cusolverDnDpotri
    cusolverDnDpotrs
    cusolverDnDpotrsBatched
    cusolverDnDsyevd
    cusolverDnDsyevdx
    cusolverDnDsyevj
    cusolverDnDsyevjBatched
    cusolverDnDsygvd
    cusolverDnDsygvdx
    cusolverDnDsygvj
    cusolverDnDsytrd
    cusolverDnDsytrf
    cusolverDnDsytri
    cusolverDnGeqrf
    cusolverDnGesvd
    cusolverDnGetrf
    cusolverDnGetrs
    cusolverDnIRSXgels
    cusolverDnIRSXgesv
    cusolverDnPotrf
    cusolverDnPotrs
    cusolverDnSBgels
    cusolverDnSBgesv
    cusolverDnSHgels
    cusolverDnSHgesv
    cusolverDnSSgels
    cusolverDnSSgesv
    cusolverDnSXgels
    cusolverDnSXgesv
    cusolverDnSgebrd
    cusolverDnSgeqrf
    cusolverDnSgesvd
    cusolverDnSgesvdaStridedBatched
    cusolverDnSgesvdj
    cusolverDnSgesvdjBatched
    cusolverDnSgetrf
    cusolverDnSgetrs
    cusolverDnSlaswp
    cusolverDnSlauum
    cusolverDnSorgbr
    cusolverDnSorgqr
    cusolverDnSorgtr
    cusolverDnSormqr
    cusolverDnSormtr
    cusolverDnSpotrf
    cusolverDnSpotrfBatched
    cusolverDnSpotri
    cusolverDnSpotrs
    cusolverDnSpotrsBatched
    cusolverDnSsyevd
    cusolverDnSsyevdx
    cusolverDnSsyevj
    cusolverDnSsyevjBatched
    cusolverDnSsygvd
    cusolverDnSsygvdx
    cusolverDnSsygvj
    cusolverDnSsytrd
    cusolverDnSsytrf
    cusolverDnSsytri
    cusolverDnSyevd
    cusolverDnSyevdx
    cusolverDnXgeqrf
    cusolverDnXgesvd
    cusolverDnXgesvdp
    cusolverDnXgesvdr
    cusolverDnXgetrf
    cusolverDnXgetrs
    cusolverDnXpotrf
    cusolverDnXpotrs
    cusolverDnXsyevd
    cusolverDnXsyevdx
    cusolverDnXsytrs
    cusolverDnXtrtri
    cusolverDnZCgels
    cusolverDnZCgesv
    cusolverDnZEgels
    cusolverDnZEgesv
    cusolverDnZKgels
    cusolverDnZKgesv
    cusolverDnZYgels
    cusolverDnZYgesv
    cusolverDnZZgels
    cusolverDnZZgesv
    cusolverDnZgebrd
    cusolverDnZgeqrf
    cusolverDnZgesvd
    cusolverDnZgesvdaStridedBatched
    cusolverDnZgesvdj
    cusolverDnZgesvdjBatched
    cusolverDnZgetrf
    cusolverDnZgetrs
    cusolverDnZheevd
    cusolverDnZheevdx
    cusolverDnZheevj
    cusolverDnZheevjBatched
    cusolverDnZhegvd
    cusolverDnZhegvdx
    cusolverDnZhegvj
    cusolverDnZhetrd
    cusolverDnZlaswp
    cusolverDnZlauum
    cusolverDnZpotrf
    cusolverDnZpotrfBatched
    cusolverDnZpotri
    cusolverDnZpotrs
    cusolverDnZpotrsBatched
    cusolverDnZsytrf
    cusolverDnZsytri
    cusolverDnZungbr
    cusolverDnZungqr
    cusolverDnZungtr
    cusolverDnZunmqr
    cusolverDnZunmtr
    cusolverRfAccessBundledFactorsDevice
    cusolverRfAnalyze
    cusolverRfBatchAnalyze
    cusolverRfBatchRefactor
    cusolverRfBatchResetValues
    cusolverRfBatchSolve
    cusolverRfBatchZeroPivot
    cusolverRfExtractBundledFactorsHost
    cusolverRfExtractSplitFactorsHost
    cusolverRfRefactor
    cusolverRfResetValues
    cusolverRfSolve
    cusolverSpCcsrcholDiag
    cusolverSpCcsrcholFactor
    cusolverSpCcsrcholFactorHost
    cusolverSpCcsrcholSolve
    cusolverSpCcsrcholSolveHost
    cusolverSpCcsrcholZeroPivot
    cusolverSpCcsrcholZeroPivotHost
    cusolverSpCcsreigsHost
    cusolverSpCcsreigvsi
    cusolverSpCcsreigvsiHost
    cusolverSpCcsrlsqvqrHost
    cusolverSpCcsrlsvchol
    cusolverSpCcsrlsvcholHost
    cusolverSpCcsrlsvluHost
    cusolverSpCcsrlsvqr
    cusolverSpCcsrlsvqrHost
    cusolverSpCcsrluExtractHost
    cusolverSpCcsrluFactorHost
    cusolverSpCcsrluSolveHost
    cusolverSpCcsrluZeroPivotHost
    cusolverSpCcsrqrFactor
    cusolverSpCcsrqrFactorHost
    cusolverSpCcsrqrSolve
    cusolverSpCcsrqrSolveHost
    cusolverSpCcsrqrZeroPivot
    cusolverSpCcsrqrZeroPivotHost
    cusolverSpCcsrqrsvBatched
    cusolverSpCcsrzfdHost
    cusolverSpDcsrcholDiag
    cusolverSpDcsrcholFactor
    cusolverSpDcsrcholFactorHost
    cusolverSpDcsrcholSolve
    cusolverSpDcsrcholSolveHost
    cusolverSpDcsrcholZeroPivot
    cusolverSpDcsrcholZeroPivotHost
    cusolverSpDcsreigsHost
    cusolverSpDcsreigvsi
    cusolverSpDcsreigvsiHost
    cusolverSpDcsrlsqvqrHost
    cusolverSpDcsrlsvchol
    cusolverSpDcsrlsvcholHost
    cusolverSpDcsrlsvluHost
    cusolverSpDcsrlsvqr
    cusolverSpDcsrlsvqrHost
    cusolverSpDcsrluExtractHost
    cusolverSpDcsrluFactorHost
    cusolverSpDcsrluSolveHost
    cusolverSpDcsrluZeroPivotHost
    cusolverSpDcsrqrFactor
    cusolverSpDcsrqrFactorHost
    cusolverSpDcsrqrSolve
    cusolverSpDcsrqrSolveHost
    cusolverSpDcsrqrZeroPivot
    cusolverSpDcsrqrZeroPivotHost
    cusolverSpDcsrqrsvBatched
    cusolverSpDcsrzfdHost
    cusolverSpScsrcholDiag
    cusolverSpScsrcholFactor
    cusolverSpScsrcholFactorHost
    cusolverSpScsrcholSolve
    cusolverSpScsrcholSolveHost
    cusolverSpScsrcholZeroPivot
    cusolverSpScsrcholZeroPivotHost
    cusolverSpScsreigsHost
    cusolverSpScsreigvsi
    cusolverSpScsreigvsiHost
    cusolverSpScsrlsqvqrHost
    cusolverSpScsrlsvchol
    cusolverSpScsrlsvcholHost
    cusolverSpScsrlsvluHost
    cusolverSpScsrlsvqr
    cusolverSpScsrlsvqrHost
    cusolverSpScsrluExtractHost
    cusolverSpScsrluFactorHost
    cusolverSpScsrluSolveHost
    cusolverSpScsrluZeroPivotHost
    cusolverSpScsrqrFactor
    cusolverSpScsrqrFactorHost
    cusolverSpScsrqrSolve
    cusolverSpScsrqrSolveHost
    cusolverSpScsrqrZeroPivot
    cusolverSpScsrqrZeroPivotHost
    cusolverSpScsrqrsvBatched
    cusolverSpScsrzfdHost
    cusolverSpXcsrcholAnalysis
    cusolverSpXcsrcholAnalysisHost
    cusolverSpXcsrissymHost
    cusolverSpXcsrluAnalysisHost
    cusolverSpXcsrluNnzHost
    cusolverSpXcsrmetisndHost
    cusolverSpXcsrpermHost
    cusolverSpXcsrqrAnalysis
    cusolverSpXcsrqrAnalysisBatched
    cusolverSpXcsrqrAnalysisHost
    cusolverSpXcsrsymamdHost
    cusolverSpXcsrsymmdqHost
    cusolverSpXcsrsymrcmHost
    cusolverSpZcsrcholDiag
    cusolverSpZcsrcholFactor
    cusolverSpZcsrcholFactorHost
    cusolverSpZcsrcholSolve
    cusolverSpZcsrcholSolveHost
    cusolverSpZcsrcholZeroPivot
    cusolverSpZcsrcholZeroPivotHost
    cusolverSpZcsreigsHost
    cusolverSpZcsreigvsi
    cusolverSpZcsreigvsiHost
    cusolverSpZcsrlsqvqrHost
    cusolverSpZcsrlsvchol
    cusolverSpZcsrlsvcholHost
    cusolverSpZcsrlsvluHost
    cusolverSpZcsrlsvqr
    cusolverSpZcsrlsvqrHost
    cusolverSpZcsrluExtractHost
    cusolverSpZcsrluFactorHost
    cusolverSpZcsrluSolveHost
    cusolverSpZcsrluZeroPivotHost
    cusolverSpZcsrqrFactor
    cusolverSpZcsrqrFactorHost
    cusolverSpZcsrqrSolve
    cusolverSpZcsrqrSolveHost
    cusolverSpZcsrqrZeroPivot
    cusolverSpZcsrqrZeroPivotHost
    cusolverSpZcsrqrsvBatched
    cusolverSpZcsrzfdHost
    cusparseAxpby
    cusparseCbsr2csr
    cusparseCbsric02
    cusparseCbsric02_analysis
    cusparseCbsrilu02
    cusparseCbsrilu02_analysis
    cusparseCbsrmm
    cusparseCbsrmv
    cusparseCbsrsm2_analysis
    cusparseCbsrsm2_solve
    cusparseCbsrsv2_analysis
    cusparseCbsrsv2_solve
    cusparseCbsrxmv
    cusparseCcsr2bsr
    cusparseCcsr2csr_compress
    cusparseCcsr2csru
    cusparseCcsr2gebsr
    cusparseCcsrcolor
    cusparseCcsrgeam2
    cusparseCcsric02
    cusparseCcsric02_analysis
    cusparseCcsrilu02
    cusparseCcsrilu02_analysis
    cusparseCcsru2csr
    cusparseCgebsr2csr
    cusparseCgebsr2gebsc
    cusparseCgebsr2gebsr
    cusparseCgemvi
    cusparseCgpsvInterleavedBatch
    cusparseCgtsv2
    cusparseCgtsv2StridedBatch
    cusparseCgtsv2_nopivot
    cusparseCgtsvInterleavedBatch
    cusparseCnnz
    cusparseCnnz_compress
    cusparseCsr2cscEx2
    cusparseDbsr2csr
    cusparseDbsric02
    cusparseDbsric02_analysis
    cusparseDbsrilu02
    cusparseDbsrilu02_analysis
    cusparseDbsrmm
    cusparseDbsrmv
    cusparseDbsrsm2_analysis
    cusparseDbsrsm2_solve
    cusparseDbsrsv2_analysis
    cusparseDbsrsv2_solve
    cusparseDbsrxmv
    cusparseDcsr2bsr
    cusparseDcsr2csr_compress
    cusparseDcsr2csru
    cusparseDcsr2gebsr
    cusparseDcsrcolor
    cusparseDcsrgeam2
    cusparseDcsric02
    cusparseDcsric02_analysis
    cusparseDcsrilu02
    cusparseDcsrilu02_analysis
    cusparseDcsru2csr
    cusparseDenseToSparse_analysis
    cusparseDenseToSparse_convert
    cusparseDgebsr2csr
    cusparseDgebsr2gebsc
    cusparseDgebsr2gebsr
    cusparseDgemvi
    cusparseDgpsvInterleavedBatch
    cusparseDgtsv2
    cusparseDgtsv2StridedBatch
    cusparseDgtsv2_nopivot
    cusparseDgtsvInterleavedBatch
    cusparseDnnz
    cusparseDnnz_compress
    cusparseDpruneCsr2csr
    cusparseDpruneCsr2csrByPercentage
    cusparseDpruneCsr2csrNnz
    cusparseDpruneCsr2csrNnzByPercentage
    cusparseDpruneDense2csr
    cusparseDpruneDense2csrByPercentage
    cusparseDpruneDense2csrNnz
    cusparseDpruneDense2csrNnzByPercentage
    cusparseGather
    cusparseHpruneCsr2csr
    cusparseHpruneCsr2csrByPercentage
    cusparseHpruneCsr2csrNnz
    cusparseHpruneCsr2csrNnzByPercentage
    cusparseHpruneDense2csr
    cusparseHpruneDense2csrByPercentage
    cusparseHpruneDense2csrNnz
    cusparseHpruneDense2csrNnzByPercentage
    cusparseRot
    cusparseSDDMM
    cusparseSbsr2csr
    cusparseSbsric02
    cusparseSbsric02_analysis
    cusparseSbsrilu02
    cusparseSbsrilu02_analysis
    cusparseSbsrmm
    cusparseSbsrmv
    cusparseSbsrsm2_analysis
    cusparseSbsrsm2_solve
    cusparseSbsrsv2_analysis
    cusparseSbsrsv2_solve
    cusparseSbsrxmv
    cusparseScatter
    cusparseScsr2bsr
    cusparseScsr2csr_compress
    cusparseScsr2csru
    cusparseScsr2gebsr
    cusparseScsrcolor
    cusparseScsrgeam2
    cusparseScsric02
    cusparseScsric02_analysis
    cusparseScsrilu02
    cusparseScsrilu02_analysis
    cusparseScsru2csr
    cusparseSgebsr2csr
    cusparseSgebsr2gebsc
    cusparseSgebsr2gebsr
    cusparseSgemvi
    cusparseSgpsvInterleavedBatch
    cusparseSgtsv2
    cusparseSgtsv2StridedBatch
    cusparseSgtsv2_nopivot
    cusparseSgtsvInterleavedBatch
    cusparseSnnz
    cusparseSnnz_compress
    cusparseSpGEMM_copy
    cusparseSpGEMMreuse_compute
    cusparseSpGEMMreuse_copy
    cusparseSpGEMMreuse_nnz
    cusparseSpMM
    cusparseSpMMOp
    cusparseSpMV
    cusparseSpSM_analysis
    cusparseSpSM_solve
    cusparseSpSV_analysis
    cusparseSpSV_solve
    cusparseSpSV_updateMatrix
    cusparseSpVV
    cusparseSparseToDense
    cusparseSpruneCsr2csr
    cusparseSpruneCsr2csrByPercentage
    cusparseSpruneCsr2csrNnz
    cusparseSpruneCsr2csrNnzByPercentage
    cusparseSpruneDense2csr
    cusparseSpruneDense2csrByPercentage
    cusparseSpruneDense2csrNnz
    cusparseSpruneDense2csrNnzByPercentage
    cusparseXcoo2csr
    cusparseXcoosortByColumn
    cusparseXcoosortByRow
    cusparseXcscsort
    cusparseXcsr2bsrNnz
    cusparseXcsr2coo
    cusparseXcsr2gebsrNnz
    cusparseXcsrgeam2Nnz
    cusparseXcsrsort
    cusparseXgebsr2gebsrNnz
    cusparseZbsr2csr
    cusparseZbsric02
    cusparseZbsric02_analysis
    cusparseZbsrilu02
    cusparseZbsrilu02_analysis
    cusparseZbsrmm
    cusparseZbsrmv
    cusparseZbsrsm2_analysis
    cusparseZbsrsm2_solve
    cusparseZbsrsv2_analysis
    cusparseZbsrsv2_solve
    cusparseZbsrxmv
    cusparseZcsr2bsr
    cusparseZcsr2csr_compress
    cusparseZcsr2csru
    cusparseZcsr2gebsr
    cusparseZcsrcolor
    cusparseZcsrgeam2
    cusparseZcsric02
    cusparseZcsric02_analysis
    cusparseZcsrilu02
    cusparseZcsrilu02_analysis
    cusparseZcsru2csr
    cusparseZgebsr2csr
    cusparseZgebsr2gebsc
    cusparseZgebsr2gebsr
    cusparseZgemvi
    cusparseZgpsvInterleavedBatch
    cusparseZgtsv2
    cusparseZgtsv2StridedBatch
    cusparseZgtsv2_nopivot
    cusparseZgtsvInterleavedBatch
    cusparseZnnz
    cusparseZnnz_compress
}
