"""The TensorFlow ops that a graph of unknown origin may contain: those without effects outside the process.

An op is listed if its documentation and its kernel show that it does nothing but compute its outputs from its inputs.
Ops that open a file, a socket or a database, run Python, talk to another process or device, write to the log, end the
process, or wait for another process are not listed. TensorFlow's own flag is no criterion: to it, ReadFile is
stateless. An op that is not listed, such as a custom op or one that a later TensorFlow adds, is refused.
"""

from __future__ import annotations

# Group: why its ops are allowed, and their names.
GROUPS: dict[str, tuple[str, str]] = {
    "structure": (
        "pass tensors on, or name the inputs and outputs of a graph; an assertion only fails the run",
        """
        Assert Const EnsureShape FakeParam GuaranteeConst Identity IdentityN NoOp Placeholder PlaceholderV2
        PlaceholderWithDefault PreventGradient Snapshot StopGradient ToBool
        """,
    ),
    "control flow": (
        "run functions of the same file, whose ops are checked as well, in this process",
        """
        Case ControlTrigger DeviceIndex Enter Exit For If LoopCond MapDefun Merge NextIteration PartitionedCall
        StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile Switch SymbolicGradient While
        """,
    ),
    "math": (
        "arithmetic on tensors in memory",
        """
        Abs AccumulateNV2 Acos Acosh Add AddN AddV2 All Angle Any ApproximateEqual ArgMax ArgMin Asin Asinh Atan Atan2
        Atanh BatchMatMul BatchMatMulV2 BatchMatMulV3 BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0
        BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Betainc Bincount Bucketize Cast Ceil CheckNumerics
        CheckNumericsV2 ClipByValue Complex ComplexAbs Conj Cos Cosh Cross Cumprod Cumsum CumulativeLogsumexp Dawsn
        DenseBincount Digamma Div DivNoNan Equal Erf Erfc Erfinv EuclideanNorm Exp Expint Expm1 Floor FloorDiv FloorMod
        FresnelCos FresnelSin Greater GreaterEqual HistogramFixedWidth Igamma IgammaGradA Igammac Imag Inv InvGrad
        IsFinite IsInf IsNan L2Loss Less LessEqual Lgamma LinSpace Log Log1p LogicalAnd LogicalNot LogicalOr MatMul Max
        Maximum Mean Min Minimum Mod Mul MulNoNan Ndtri Neg NextAfter NotEqual Polygamma Pow Prod RaggedBincount Range
        Real RealDiv Reciprocal ReciprocalGrad Rint Round Rsqrt RsqrtGrad SegmentMax SegmentMaxV2 SegmentMean SegmentMin
        SegmentMinV2 SegmentProd SegmentProdV2 SegmentSum SegmentSumV2 Select SelectV2 Sigmoid SigmoidGrad Sign Sin Sinh
        Spence Sqrt SqrtGrad Square SquaredDifference Sub Sum Tan Tanh TanhGrad TruncateDiv TruncateMod
        UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum Xdivy Xlog1py Xlogy Zeta
        """,
    ),
    "bits and sets": (
        "arithmetic on integers and sets in memory",
        """
        BitwiseAnd BitwiseOr BitwiseXor DenseToDenseSetOperation DenseToSparseSetOperation Invert LeftShift
        PopulationCount RightShift SetSize SparseToSparseSetOperation
        """,
    ),
    "arrays": (
        "cut, join and rearrange tensors in memory",
        """
        BatchMatrixBandPart BatchMatrixDiag BatchMatrixDiagPart BatchMatrixSetDiag BatchToSpace BatchToSpaceND Bitcast
        BroadcastArgs BroadcastGradientArgs BroadcastTo Concat ConcatOffset ConcatV2 ConjugateTranspose DepthToSpace
        Diag DiagPart DynamicPartition DynamicStitch EditDistance Empty ExpandDims Fill Fingerprint Gather GatherNd
        GatherV2 InvertPermutation ListDiff LowerBound MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagPartV2
        MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MirrorPad MirrorPadGrad
        NthElement OneHot OnesLike Pack Pad PadV2 ParallelDynamicStitch Rank Reshape Reverse ReverseSequence ReverseV2
        Roll ScatterNd ScatterNdNonAliasingAdd Shape ShapeN Size Slice SpaceToBatch SpaceToBatchND SpaceToDepth Split
        SplitV Squeeze StridedSlice StridedSliceGrad TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub
        TensorScatterUpdate TensorStridedSliceUpdate Tile TileGrad TopK TopKV2 Transpose Unique UniqueV2
        UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex UpperBound Where ZerosLike
        """,
    ),
    "lists of tensors": (
        "arrays, lists, maps and stacks of tensors in memory",
        """
        CompositeTensorVariantFromComponents CompositeTensorVariantToComponents EmptyTensorList EmptyTensorMap
        OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone StackCloseV2 StackPopV2 StackPushV2 StackV2
        TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGradV3 TensorArrayGradWithShape
        TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3
        TensorListConcat TensorListConcatLists TensorListConcatV2 TensorListElementShape TensorListFromTensor
        TensorListGather TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack TensorListPushBackBatch
        TensorListReserve TensorListResize TensorListScatter TensorListScatterIntoExistingList TensorListScatterV2
        TensorListSetItem TensorListSplit TensorListStack TensorMapErase TensorMapHasKey TensorMapInsert TensorMapLookup
        TensorMapSize TensorMapStackKeys
        """,
    ),
    "strings": (
        "work on strings in memory; ShardedFilename and ShardedFilespec only put a name together",
        """
        AsString DecodeBase64 EncodeBase64 ReduceJoin RegexFullMatch RegexReplace ShardedFilename ShardedFilespec
        StaticRegexFullMatch StaticRegexReplace StringFormat StringJoin StringLength StringLower StringNGrams
        StringSplit StringSplitV2 StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong
        StringToNumber StringUpper Substr UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript
        UnicodeTranscode UnsortedSegmentJoin
        """,
    ),
    "parsing": (
        "decode bytes that are in memory; DecodeProtoV2, which can read a descriptor from a file, is not among them",
        """
        DecodeCSV DecodeCompressed DecodeJSONExample DecodePaddedRaw DecodeRaw ParseExample ParseExampleV2
        ParseSequenceExample ParseSequenceExampleV2 ParseSingleExample ParseSingleSequenceExample ParseTensor
        SerializeTensor
        """,
    ),
    "summaries": (
        "make the bytes of a summary; those that write it to a file are not among them",
        """
        AudioSummary AudioSummaryV2 HistogramSummary ImageSummary MergeSummary ScalarSummary TensorSummary
        TensorSummaryV2
        """,
    ),
    "ragged": (
        "work on ragged tensors in memory",
        """
        RaggedCountSparseOutput RaggedCross RaggedFillEmptyRows RaggedFillEmptyRowsGrad RaggedGather RaggedRange
        RaggedTensorFromVariant RaggedTensorToSparse RaggedTensorToTensor RaggedTensorToVariant
        RaggedTensorToVariantGradient
        """,
    ),
    "sparse": (
        "work on sparse tensors in memory",
        """
        AddManySparseToTensorsMap AddSparseToTensorsMap CSRSparseMatrixComponents CSRSparseMatrixToDense
        CSRSparseMatrixToSparseTensor DenseCountSparseOutput DenseToCSRSparseMatrix DeserializeManySparse
        DeserializeSparse SerializeManySparse SerializeSparse SparseAdd SparseAddGrad SparseBincount SparseConcat
        SparseCountSparseOutput SparseCross SparseCrossHashed SparseCrossV2 SparseDenseCwiseAdd SparseDenseCwiseDiv
        SparseDenseCwiseMul SparseFillEmptyRows SparseFillEmptyRowsGrad SparseMatMul SparseMatrixAdd SparseMatrixMatMul
        SparseMatrixMul SparseMatrixNNZ SparseMatrixOrderingAMD SparseMatrixSoftmax SparseMatrixSoftmaxGrad
        SparseMatrixSparseCholesky SparseMatrixSparseMatMul SparseMatrixTranspose SparseMatrixZeros SparseReduceMax
        SparseReduceMaxSparse SparseReduceSum SparseReduceSumSparse SparseReorder SparseReshape SparseSegmentMean
        SparseSegmentMeanGrad SparseSegmentMeanGradV2 SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
        SparseSegmentSqrtNGrad SparseSegmentSqrtNGradV2 SparseSegmentSqrtNWithNumSegments SparseSegmentSum
        SparseSegmentSumGrad SparseSegmentSumGradV2 SparseSegmentSumWithNumSegments SparseSlice SparseSliceGrad
        SparseSoftmax SparseSparseMaximum SparseSparseMinimum SparseSplit SparseTensorDenseAdd SparseTensorDenseMatMul
        SparseTensorToCSRSparseMatrix SparseToDense TakeManySparseFromTensorsMap
        """,
    ),
    "linear algebra": (
        "decompose, solve and multiply matrices in memory",
        """
        BandedTriangularSolve BatchCholesky BatchCholeskyGrad BatchMatrixDeterminant BatchMatrixInverse BatchMatrixSolve
        BatchMatrixSolveLs BatchMatrixTriangularSolve BatchSelfAdjointEig BatchSelfAdjointEigV2 BatchSvd Cholesky
        CholeskyGrad Eig Einsum LogMatrixDeterminant Lu MatrixDeterminant MatrixExponential MatrixInverse
        MatrixLogarithm MatrixSolve MatrixSolveLs MatrixSquareRoot MatrixTriangularSolve Qr SelfAdjointEig
        SelfAdjointEigV2 Svd TridiagonalMatMul TridiagonalSolve
        """,
    ),
    "signals": (
        "transform signals in memory",
        """
        AudioSpectrogram BatchFFT BatchFFT2D BatchFFT3D BatchIFFT BatchIFFT2D BatchIFFT3D DecodeWav EncodeWav FFT FFT2D
        FFT3D FFTND IFFT IFFT2D IFFT3D IFFTND IRFFT IRFFT2D IRFFT3D IRFFTND Mfcc RFFT RFFT2D RFFT3D RFFTND
        """,
    ),
    "random": (
        "draw numbers in memory; a generator's state is a variable",
        """
        AnonymousRandomSeedGenerator AnonymousSeedGenerator DeleteRandomSeedGenerator DeleteSeedGenerator
        DummySeedGenerator Multinomial NonDeterministicInts ParameterizedTruncatedNormal RandomGamma RandomGammaGrad
        RandomIndexShuffle RandomPoisson RandomPoissonV2 RandomShuffle RandomStandardNormal RandomUniform
        RandomUniformInt RngReadAndSkip RngSkip SobolSample StatefulRandomBinomial StatefulStandardNormal
        StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt StatefulUniformInt
        StatelessMultinomial StatelessParameterizedTruncatedNormal StatelessRandomBinomial StatelessRandomGammaV2
        StatelessRandomGammaV3 StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg
        StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomPoisson StatelessRandomUniform
        StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
        StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessShuffle StatelessTruncatedNormal
        StatelessTruncatedNormalV2 TruncatedNormal
        """,
    ),
    "candidate sampling": (
        "draw classes in memory; FixedUnigramCandidateSampler, which can read a vocabulary file, is not among them",
        """
        AllCandidateSampler ComputeAccidentalHits LearnedUnigramCandidateSampler LogUniformCandidateSampler
        ThreadUnsafeUnigramCandidateSampler UniformCandidateSampler
        """,
    ),
    "neural networks": (
        "layers and their gradients, computed in memory",
        """
        ApproxTopK AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BatchNormWithGlobalNormalization
        BatchNormWithGlobalNormalizationGrad BiasAdd BiasAddGrad BiasAddV1 BlockLSTM BlockLSTMGrad BlockLSTMGradV2
        BlockLSTMV2 CTCBeamSearchDecoder CTCGreedyDecoder CTCLoss CTCLossV2 Conv Conv2D Conv2DBackpropFilter
        Conv2DBackpropFilterV2 Conv2DBackpropInput Conv2DBackpropInputV2 Conv3D Conv3DBackpropFilter
        Conv3DBackpropFilterV2 Conv3DBackpropInput Conv3DBackpropInputV2 CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2
        CudnnRNNBackpropV3 CudnnRNNCanonicalToParams CudnnRNNCanonicalToParamsV2 CudnnRNNParamsSize
        CudnnRNNParamsToCanonical CudnnRNNParamsToCanonicalV2 CudnnRNNV2 CudnnRNNV3 DataFormatDimMap
        DataFormatVecPermute DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
        DepthwiseConv2dNativeBackpropInput Dilation2D Dilation2DBackpropFilter Dilation2DBackpropInput Elu EluGrad
        FractionalAvgPool FractionalAvgPoolGrad FractionalMaxPool FractionalMaxPoolGrad FusedBatchNorm
        FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3 FusedPadConv2D
        FusedResizeAndPadConv2D GRUBlockCell GRUBlockCellGrad InTopK InTopKV2 IsotonicRegression LRN LRNGrad
        LSTMBlockCell LSTMBlockCellGrad LeakyRelu LeakyReluGrad LogSoftmax MaxPool MaxPool3D MaxPool3DGrad
        MaxPool3DGradGrad MaxPoolGrad MaxPoolGradGrad MaxPoolGradGradV2 MaxPoolGradGradWithArgmax MaxPoolGradV2
        MaxPoolGradWithArgmax MaxPoolV2 MaxPoolWithArgmax NearestNeighbors Relu Relu6 Relu6Grad ReluGrad Selu SeluGrad
        Softmax SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad
        SparseSoftmaxCrossEntropyWithLogits
        """,
    ),
    "quantized": (
        "layers and conversions with numbers of few bits",
        """
        Dequantize FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars
        FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxVarsPerChannelGradient
        QuantizeAndDequantize QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4
        QuantizeAndDequantizeV4Grad QuantizeDownAndShrinkRange QuantizeV2 QuantizedAdd QuantizedAvgPool
        QuantizedBatchNormWithGlobalNormalization QuantizedBiasAdd QuantizedConcat QuantizedConv2D
        QuantizedDepthwiseConv2D QuantizedInstanceNorm QuantizedMatMul QuantizedMaxPool QuantizedMul QuantizedRelu
        QuantizedRelu6 QuantizedReluX QuantizedReshape QuantizedResizeBilinear RequantizationRange
        RequantizationRangePerChannel Requantize RequantizePerChannel UniformDequantize UniformQuantize
        UniformQuantizedAdd UniformQuantizedClipByValue UniformQuantizedConvolution UniformQuantizedConvolutionHybrid
        UniformQuantizedDot UniformQuantizedDotHybrid UniformRequantize
        """,
    ),
    "images": (
        "decode, encode and change images in memory",
        """
        AdjustContrast AdjustContrastv2 AdjustHue AdjustSaturation CombinedNonMaxSuppression CropAndResize
        CropAndResizeGradBoxes CropAndResizeGradImage DecodeAndCropJpeg DecodeBmp DecodeGif DecodeImage DecodeJpeg
        DecodePng DecodeWebP DrawBoundingBoxes DrawBoundingBoxesV2 EncodeJpeg EncodeJpegVariableQuality EncodePng
        ExtractGlimpse ExtractGlimpseV2 ExtractImagePatches ExtractJpegShape ExtractVolumePatches
        GenerateBoundingBoxProposals HSVToRGB ImageProjectiveTransformV2 ImageProjectiveTransformV3 NonMaxSuppression
        NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps
        RGBToHSV RandomCrop ResizeArea ResizeBicubic ResizeBicubicGrad ResizeBilinear ResizeBilinearGrad
        ResizeNearestNeighbor ResizeNearestNeighborGrad SampleDistortedBoundingBox SampleDistortedBoundingBoxV2
        ScaleAndTranslate ScaleAndTranslateGrad StatelessSampleDistortedBoundingBox
        """,
    ),
    "variables": (
        "hold and change variables of this process, and train them",
        """
        Assign AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp AssignVariableOp CountUpTo DestroyResourceOp
        DestroyTemporaryVariable DisableCopyOnRead IsVariableInitialized ReadVariableOp ResourceApplyAdaMax
        ResourceApplyAdadelta ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyAdagradV2 ResourceApplyAdam
        ResourceApplyAdamWithAmsgrad ResourceApplyAddSign ResourceApplyCenteredRMSProp ResourceApplyFtrl
        ResourceApplyFtrlV2 ResourceApplyGradientDescent ResourceApplyKerasMomentum ResourceApplyMomentum
        ResourceApplyPowerSign ResourceApplyProximalAdagrad ResourceApplyProximalGradientDescent ResourceApplyRMSProp
        ResourceCountUpTo ResourceGather ResourceGatherNd ResourceScatterAdd ResourceScatterDiv ResourceScatterMax
        ResourceScatterMin ResourceScatterMul ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin
        ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate
        ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA ResourceSparseApplyAdagradV2
        ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2
        ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum ResourceSparseApplyProximalAdagrad
        ResourceSparseApplyProximalGradientDescent ResourceSparseApplyRMSProp ResourceStridedSliceAssign ScatterAdd
        ScatterDiv ScatterMax ScatterMin ScatterMul ScatterNdAdd ScatterNdSub ScatterNdUpdate ScatterSub ScatterUpdate
        TemporaryVariable VarHandleOp VarIsInitializedOp Variable VariableShape VariableV2
        """,
    ),
    "lookup tables": (
        "hold tables of this process; ops that fill one from a file are in FILE_INPUTS",
        """
        AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable AnonymousMutableHashTableOfTensors
        HashTable HashTableV2 InitializeTable InitializeTableFromDataset InitializeTableV2 LookupTableExport
        LookupTableExportV2 LookupTableFind LookupTableFindV2 LookupTableImport LookupTableImportV2 LookupTableInsert
        LookupTableInsertV2 LookupTableRemoveV2 LookupTableSize LookupTableSizeV2 MutableDenseHashTable
        MutableDenseHashTableV2 MutableHashTable MutableHashTableOfTensors MutableHashTableOfTensorsV2
        MutableHashTableV2
        """,
    ),
    "tf.data in memory": (
        "make and change datasets of tensors in memory; those that read, cache or save files are not among them",
        """
        AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 AssertCardinalityDataset BatchDataset BatchDatasetV2
        ConcatenateDataset DatasetCardinality DatasetToSingleElement DeleteIterator DenseToSparseBatchDataset
        DirectedInterleaveDataset FilterDataset FinalizeDataset FlatMapDataset GroupByReducerDataset
        GroupByWindowDataset IgnoreErrorsDataset InterleaveDataset Iterator IteratorGetNext IteratorGetNextAsOptional
        IteratorGetNextSync IteratorV2 ListDataset MakeIterator MapAndBatchDataset MapDataset
        MaxIntraOpParallelismDataset ModelDataset OneShotIterator OptimizeDatasetV2 OptionsDataset PaddedBatchDataset
        PaddedBatchDatasetV2 ParallelBatchDataset ParallelFilterDataset ParallelInterleaveDatasetV2
        ParallelInterleaveDatasetV3 ParallelInterleaveDatasetV4 ParallelMapDataset ParallelMapDatasetV2
        ParseExampleDataset ParseExampleDatasetV2 PrefetchDataset PrivateThreadPoolDataset RandomDataset RandomDatasetV2
        RangeDataset RebatchDataset RebatchDatasetV2 ReduceDataset RepeatDataset RewriteDataset SamplingDataset
        ScanDataset
        ShardDataset ShuffleAndRepeatDataset ShuffleAndRepeatDatasetV2 ShuffleDataset ShuffleDatasetV2 ShuffleDatasetV3
        SkipDataset SlidingWindowDataset SparseTensorSliceDataset TakeDataset TakeWhileDataset TensorDataset
        TensorSliceDataset UnbatchDataset UniqueDataset UnwrapDatasetVariant WindowDataset WindowOp WrapDatasetVariant
        ZipDataset
        """,
    ),
}

ALLOWED = frozenset(name for _, names in GROUPS.values() for name in names.split())

# Ops that read a file, and which input names it: allowed if that is a file of the SavedModel itself.
FILE_INPUTS = {"RestoreV2": 0, "InitializeTableFromTextFile": 1, "InitializeTableFromTextFileV2": 1}

# Ops that write a checkpoint. Every export contains them; nothing that runs may lead to them.
SAVING = frozenset({"SaveV2", "MergeV2Checkpoints"})
